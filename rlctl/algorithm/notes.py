"""What is known of each row's source: its formula, what of it was read, what is ours and why.

Only the documentation reads this. "Read" means the paper's text or its authors' code; "digest" a third
party's account of the paper that states the formula.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """One row of the table in words; empty: nothing to say."""

    formula: str
    sure: str
    ours: str = ""
    caution: str = ""


_FOCAL_CAUTION = (
    "Gives all-correct groups the factor 0: with the controller `collapse` only all-wrong groups are "
    "repaired. Holds easy prompts back as `clip: group` does: try each alone before both."
)

NOTES: dict[str, Note] = {
    "grpo": Note(
        "A = (R - mean) / (std + 1e-6); mean over rows of the mean over tokens of min(r A, clip(r) A).",
        "Formula read. One update for each rollout, as in the paper, so the clip cannot act.",
        "Bessel's std. The paper's KL weight of 0.04 is in `recipes/gsm8k_grpo.yaml`, not in the row.",
    ),
    "dr_grpo": Note("A = R - mean; sum over tokens / (rows * max length).", "Formula read."),
    "dapo": Note(
        "As GRPO, with [0.8, 1.28], the mean over all tokens, mixed groups only, soft overlong punishment.",
        "Formula read; the published length buffer is a fifth of the limit.",
        "Refills are bounded by `rollout.max_refills`.",
        "Drops the groups that the controller `collapse` repairs: the two together are refused.",
    ),
    "cispo": Note(
        "sg(clip(r, 0, 5)) A log p, mean over all tokens.",
        "Formula read; ScaleRL's bound of 5. Other systems count the bound from 0: here it is a distance.",
    ),
    "gspo": Note("r of a row = exp(mean log-ratio), clipped by 3e-4 / 4e-4.", "Formula and numbers read."),
    "sapo": Note(
        "(4 / tau) sigmoid(tau (r - 1)) A, tau 1.0 for A > 0 and 1.05 else.",
        "Formula and tau read.",
        "8 minibatches are verl's example; the paper's number is not confirmed.",
    ),
    "rloo": Note(
        "A = R - mean of the others; A times the sum of a row's log-probs.", "From memory, widely used."
    ),
    "agpo": Note(
        "A probe of G samples at the base temperature gives spread s, vote entropy E and skewness k of each "
        "prompt. Temperature = base (1 + 0.15 u), u = (U - mean U) / mean U, U = s + E. Bounds 1 +- e, "
        "e = 0.2 h (1 + 0.1 E) / (1 + s + 0.5 K), h the policy's entropy against its running mean, K the "
        "running mean of a step's KL. k1 KL of weight 0.03 to the reference.",
        "All formulas, orders and defaults are read from the authors' code. Their default ignores skewness, "
        "which the abstract names: `skew_weight` of both controllers brings it in. Their example recipes "
        "sample at top_p 0.9: left out. Their one flag for a robust spread is two settings here: "
        "`probe.dispersion` and `advantage.std`.",
        "Old log-probs are those of the sampling temperature; `ratio_temperature: one` (with `correction: "
        "{kind: none}`) is the authors' form, whose ratio is no importance ratio where the temperature is "
        "not 1; `mismatch/*` then compares two laws. The divergence is a mean over a prompt's tokens, then "
        "over prompts (`kl_aggregate: group`), as their loop over prompts does. The paper's large-scale "
        "settings are unknown.",
        "The probe doubles the samples and is charged to the token budget: compare at equal "
        "`budget.tokens`. With one update a step (as in the authors' example recipes) its clip cannot act.",
    ),
    "gapo": Note(
        "A = R - c/k; upper bound of right answers 0.2 + 0.08 (k - c) / (k - 1) for c right of k, 0.2 else.",
        "Rule and numbers from digests that agree; 4 minibatches are the paper's 256 prompts in 64.",
        "The mean over rows, as the formula is written; the authors' exact form is not published, "
        "`form: exact` is ours.",
        "Needs A without std and several updates for each rollout. With focal weights: try each alone.",
    ),
    "gapo_seq": Note(
        "As `gapo` on the row's ratio exp(mean log-ratio), bounds 0.003 and up to 0.005.",
        "Numbers of Qwen2.5-Math-1.5B and Llama-3.2-3B; R1-Distill-1.5B has (7e-5, 3e-4).",
        "",
        "As for `gapo`.",
    ),
    "avspo": Note(
        "A = (R - mean(R with V)) / (std(R with V) + 1e-6), with K = ceil(G ACR^0.5) virtual rewards V in "
        "each group of equal rewards while ACR > threshold. V never enters a log-prob.",
        "K and the statistics from two digests; the second digest's K is `count: linear`.",
        "Population std. The layers (0.1 k/K above an all-wrong group, k/(K+1) below an all-correct one), "
        "the ablation's other values and the rule of the threshold are ours: only words are known. The "
        "threshold begins at 0.5 and never rises; a first form that rose while rewards rose never fired. "
        "All-wrong groups get the same advantage at every anchor; values all equal give +-sqrt(K/G). The "
        "control without virtual rewards is `advantage: {kind: zscore, std: population, homogeneous: c}`.",
        "Refused with `admit: mixed`. Focal keeps only the all-wrong repair; CoDaPO's factor undoes it.",
    ),
    "f_grpo": Note(
        "A = (1 - X/G)^0.5 (R - mean) / (population std + 1e-6), token mean, 0.2 / 0.2.",
        "Read: formula, token mean, clips; gamma is the one chosen for GRPO on Qwen2.5-7B; 4 minibatches are "
        "256 prompts in 64.",
        "Population std.",
        _FOCAL_CAUTION,
    ),
    "f_dapo": Note(
        "As `f_grpo` with 0.2 / 0.28.",
        "Read. No admission and no overlong shaping: the paper's appendix has the asymmetric clip alone.",
        "",
        _FOCAL_CAUTION,
    ),
    "f_cispo": Note(
        "(1 - X/G)^1 on sg(clip(r, 0, 6)) A log p, token mean.",
        "Read: bounds 1.0 and 5.0 as distances; gamma 1 as chosen for CISPO.",
        "Population std.",
        _FOCAL_CAUTION,
    ),
    "codapo": Note(
        "A = (v + 0.1)(R - mean) / (std + 1e-6), v = exp(mean log-prob of the group) (1 - 4 (d - 1/2)^2), "
        "d the share of wrong answers. Every second step samples anew for the questions of highest v.",
        "Read from the authors' code: formula, floor 0.1 (`offset: 0` is the paper's), quantile 0.75 and "
        "four repeats (`select: top` is the paper's top-K), dual clip of 3, token mean.",
        "`correct` is the verifier's word, not reward == 1.0. The authors' entropy bonus of 0.001 is off. "
        "The paper's mean within a prompt is `aggregate: group`.",
        "Both steps count. Refused with admission and with stages.",
    ),
    "mu_grpo": Note(
        "The rollouts of `ahead` steps are sampled at once; each is trained once, the later the staler. "
        "Wide clip; in rows with A < 0 what follows the first token with r < 0.2 is left out.",
        "Read: few large stages, relaxed clip, veto of the suffix of negative rows.",
        "One use of each sample. Trigger, threshold, clip and `ahead: 16` are ours; the paper has four "
        "stages, so set `ahead` to a quarter of `budget.steps`. The trigger token stays; vetoed tokens stay "
        "in the denominators (`recount: true` spreads the row's weight over the rest).",
        "A stage's tokens are charged when it is sampled; a token budget ends the run only after it.",
    ),
    "edge": Note(
        "A_i = (R_i - mean) / (std + 1e-6) * mean P / P_i, P a row's mean entropy.",
        "Read from the authors' code.",
        "Detached, without padding, and within the group, as the paper says; the code is none of these. The "
        "factor is held in [0.1, 10], a clamp that their code has commented out. The guided correction of "
        "wrong answers is not built.",
        "Equal groups stay at 0.",
    ),
    "mdp": Note(
        "A = 0.8 T(z) + 0.2 T(d), z against the group, d against the goal 0.5, T a tanh that weighs losses "
        "more; temperatures 0.1, 0.4, 0.7, 1.0 by slot; KL of 0.01, and 0.025 where A < 0.",
        "Read from the authors' code; where paper and code disagree (goal, its std) both are there, the "
        "paper's by default. The released pipeline has gain and loss reversed.",
        "",
        "For rewards of 0 and 1, d gives equal groups +-1: close to AVSPO.",
    ),
    "ppo_lambda": Note(
        "Bounds [min(1, t) - 0.2, max(1, t) + 0.2] around t = exp(A / lambda).",
        "Read: the target t.",
        "Bounds and the rule for lambda are ours.",
        "Needs several updates for each rollout.",
    ),
    "quatro": Note(
        "r (A - lambda sg(log r)), lambda of each prompt from the dual of max E[r A] under KL <= delta.",
        "Only that there is a constraint, a dual variable for each prompt, and a stabiliser in log r.",
        "Everything else: the dual over the group, the row's ratio as a geometric mean, delta 0.05.",
        "Needs several updates for each rollout. Where over 95% of a group are right (k - 1 of k from k = 21 "
        "on), no lambda reaches a KL of 0.05: it falls to its least, 1e-3.",
    ),
}

NOT_BUILT = {
    "A²TGPO (2605.06200)": "clips by turn and reads the gain of each turn: rollouts here have one turn",
    "ISPO (2606.08815)": "its weights and thresholds are not published",
    "PlanPO": "no paper or code of that name was found",
}
