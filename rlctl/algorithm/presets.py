"""THE table: one row per published algorithm, as what it sets apart from the defaults of `Algorithm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT = "grpo"


@dataclass(frozen=True)
class Row:
    """A published algorithm in the words of a recipe; `source` is its arXiv id."""

    title: str
    source: str
    stages: dict[str, Any]


POPULATION = {"kind": "zscore", "std": "population"}
# What the three focal rows share: our std, the paper's token mean, and its 256 prompts in 4 minibatches.
FOCAL: dict[str, Any] = {"advantage": POPULATION, "aggregate": "token", "staging": {"minibatches": 4}}

PRESETS: dict[str, Row] = {
    "grpo": Row("GRPO", "2402.03300", {}),
    "dr_grpo": Row("Dr. GRPO", "2503.20783", {"advantage": {"kind": "centred"}, "aggregate": "constant"}),
    "dapo": Row(
        "DAPO",
        "2503.14476",
        {
            "shaping": [{"kind": "overlong"}],
            "admit": {"kind": "mixed"},
            "clip": {"kind": "fixed", "low": 0.2, "high": 0.28},
            "aggregate": "token",
        },
    ),
    "cispo": Row(
        "CISPO",
        "2506.13585",
        {
            "clip": {"kind": "fixed", "low": 1.0, "high": 4.0},
            "surrogate": {"kind": "clipped_weight"},
            "aggregate": "token",
        },
    ),
    "gspo": Row(
        "GSPO",
        "2507.18071",
        {
            "level": "sequence",
            "clip": {"kind": "fixed", "low": 3e-4, "high": 4e-4},
            "staging": {"minibatches": 4},
        },
    ),
    "sapo": Row(
        "SAPO",
        "2511.20347",
        {"clip": {"kind": "none"}, "surrogate": {"kind": "soft_gate"}, "staging": {"minibatches": 8}},
    ),
    "rloo": Row(
        "RLOO",
        "2402.14740",
        {
            "advantage": {"kind": "leave_one_out"},
            "clip": {"kind": "none"},
            "surrogate": {"kind": "reinforce"},
            "aggregate": "row_sum",
        },
    ),
    "agpo": Row(
        "AGPO",
        "2605.20722",
        {
            "advantage": {"kind": "zscore", "eps": 0.0},
            "clip": {"kind": "controlled"},
            "kl": 0.03,
            "kl_estimator": "k1",
            "kl_aggregate": "group",
            "staging": {"epochs": 4},
            "probe": {},
            "control": [{"kind": "temperature"}, {"kind": "clip"}],
        },
    ),
    "gapo": Row(
        "GAPO, token ratio",
        "2609.00444",
        {
            "advantage": {"kind": "centred"},
            "clip": {"kind": "group", "low": 0.2, "high": 0.28},
            "staging": {"minibatches": 4},
        },
    ),
    "gapo_seq": Row(
        "GAPO, sequence ratio",
        "2609.00444",
        {
            "advantage": {"kind": "centred"},
            "level": "sequence",
            "clip": {"kind": "group", "low": 3e-3, "high": 5e-3},
            "staging": {"minibatches": 4},
        },
    ),
    "avspo": Row("AVSPO", "2605.21125", {"advantage": POPULATION, "control": [{"kind": "collapse"}]}),
    "f_grpo": Row("F-GRPO", "2602.06717", FOCAL | {"reweight": [{"kind": "focal", "gamma": 0.5}]}),
    "f_dapo": Row(
        "F-DAPO",
        "2602.06717",
        FOCAL
        | {
            "reweight": [{"kind": "focal", "gamma": 0.5}],
            "clip": {"kind": "fixed", "low": 0.2, "high": 0.28},
        },
    ),
    "f_cispo": Row(
        "F-CISPO",
        "2602.06717",
        FOCAL
        | {
            "reweight": [{"kind": "focal", "gamma": 1.0}],
            "clip": {"kind": "fixed", "low": 1.0, "high": 5.0},
            "surrogate": {"kind": "clipped_weight"},
        },
    ),
    "codapo": Row(
        "CoDaPO",
        "2606.07950",
        {
            "reweight": [{"kind": "codapo"}],
            "surrogate": {"kind": "clipped", "dual": 3.0},
            "aggregate": "token",
            "control": [{"kind": "focus"}],
        },
    ),
    "mu_grpo": Row(
        "Mu-GRPO",
        "2605.17570",
        {
            "clip": {"kind": "fixed", "low": 1.0, "high": 1.0},
            "veto": {"kind": "suffix"},
            "staging": {"ahead": 16},
        },
    ),
    "edge": Row("EDGE-GRPO", "2507.21848", {"reweight": [{"kind": "entropy"}], "aggregate": "token"}),
    "mdp": Row(
        "MDP-GRPO",
        "2606.06058",
        {
            "advantage": {"kind": "dual_anchor"},
            "kl": 0.01,
            "kl_negative": 0.025,
            "control": [{"kind": "slots"}],
        },
    ),
    "ppo_lambda": Row(
        "PPO-lambda",
        "1804.06461",
        {"clip": {"kind": "target"}, "staging": {"minibatches": 4}, "control": [{"kind": "price"}]},
    ),
    "quatro": Row(
        "QUATRO",
        "2602.04620",
        {
            "advantage": {"kind": "centred"},
            "level": "sequence",
            "clip": {"kind": "dual"},
            "surrogate": {"kind": "priced"},
            "staging": {"minibatches": 4},
        },
    ),
}
