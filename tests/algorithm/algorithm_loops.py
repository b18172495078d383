"""The losses of whole rows a second way: plain numbers, loops, and the derivative by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from algorithm_cases import MAX_LENGTH, Problem, Row

TOKEN_MEAN = {"dapo", "cispo", "f_grpo", "f_dapo", "f_cispo", "codapo", "edge"}
SEQUENCE = {"gspo", "gapo_seq", "quatro"}
CENTRED = {"dr_grpo", "gapo", "gapo_seq", "quatro"}
POPULATION = {"avspo", "f_grpo", "f_dapo", "f_cispo"}
LOW_HIGH = {
    "dapo": (0.2, 0.28),
    "f_dapo": (0.2, 0.28),
    "gspo": (3e-4, 4e-4),
    "cispo": (1.0, 4.0),
    "f_cispo": (1.0, 5.0),
    "mu_grpo": (1.0, 1.0),
}


@dataclass
class Token:
    """What a token's gain is made of."""

    A: float
    ratio: float
    logp: float
    low: float
    high: float
    price: float


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def right(row: Row) -> bool:
    return row.reward is not None and row.reward >= 0.5


def ids(row: Row) -> range:
    return range(row.start, row.start + row.length)


def groups_of(toy: Problem) -> list[list[Row]]:
    return [toy.rows[first : first + toy.G] for first in range(0, len(toy.rows), toy.G)]


# Advantages.


def advantages(spec: dict[str, Any], rewards: list[float], virtual: list[float]) -> list[float]:
    name = spec["preset"]
    if name == "mdp":
        return dual_anchor(spec.get("advantage", {}), rewards)
    pool = rewards + virtual
    n, middle = len(pool), mean(pool)
    if max(pool) - min(pool) < 1e-9:
        return [0.0] * len(rewards)
    if name == "rloo":
        return [r - (sum(rewards) - r) / (n - 1) for r in rewards]
    if name in CENTRED:
        return [r - middle for r in rewards]
    lost = 0 if name in POPULATION else 1
    scale = math.sqrt(sum((r - middle) ** 2 for r in pool) / (n - lost)) + (0 if name == "agpo" else 1e-6)
    return [(r - middle) / scale for r in rewards]


def dual_anchor(options: dict[str, Any], rewards: list[float]) -> list[float]:
    def bend(v: float) -> float:
        return (1.25 if v >= 0 else 2.0) * math.tanh(0.8 * v)

    middle, G = mean(rewards), len(rewards)
    std = math.sqrt(mean([(r - middle) ** 2 for r in rewards]))
    goal = max(0.5, middle) if options.get("goal") == "moving" else 0.5
    goal_std = math.sqrt(G / 4) if options.get("goal_std") == "code" else 0.5
    return [
        0.8 * bend((r - middle) / std if std > 1e-6 else 0.0) + 0.2 * bend((r - goal) / goal_std)
        for r in rewards
    ]


def virtual_rewards(spec: dict[str, Any], toy: Problem) -> list[list[float]]:
    """AVSPO's stratified values for the collapsed groups, if so many are collapsed that it acts."""
    rewards = [[float(row.reward or 0) for row in group] for group in groups_of(toy)]
    collapsed = [max(each) == min(each) for each in rewards]
    acr = sum(collapsed) / len(collapsed)
    threshold = spec["control"][0]["threshold"] if "control" in spec else 0.5
    if spec["preset"] != "avspo" or acr <= threshold:
        return [[] for _ in rewards]
    K = max(1, min(toy.G, math.ceil(toy.G * math.sqrt(acr))))
    up, down = [0.1 * k / K for k in range(1, K + 1)], [-k / (K + 1) for k in range(1, K + 1)]
    return [
        [each[0] + step for step in (down if each[0] >= 0.5 else up)] if flat else []
        for each, flat in zip(rewards, collapsed, strict=True)
    ]


def factors(spec: dict[str, Any], group: list[Row], toy: Problem) -> list[float]:
    name, entropy, old = spec["preset"], toy.entropy.tolist(), toy.old.tolist()
    solved = sum(map(right, group)) / len(group)
    gamma = {"f_grpo": 0.5, "f_dapo": 0.5, "f_cispo": 1.0}.get(name)
    if "reweight" in spec:
        gamma = spec["reweight"][0]["gamma"]
    if gamma is not None:
        return [(1 - solved) ** gamma] * len(group)
    if name == "codapo":
        confidence = math.exp(mean([mean([old[i] for i in ids(row)]) for row in group]))
        return [confidence * (1 - 4 * (1 - solved - 0.5) ** 2) + 0.1] * len(group)
    if name == "edge":
        P = [mean([entropy[i] for i in ids(row)]) for row in group]
        return [1 / min(max(each / mean(P), 0.1), 10.0) for each in P]
    return [1.0] * len(group)


# Bounds, one (low, high) a member, and the price of a group.


def bounds(spec: dict[str, Any], p: int, toy: Problem, A: list[float]) -> list[tuple[float, float]]:
    name, group = spec["preset"], groups_of(toy)[p]
    if name == "agpo":
        return [(agpo_bounds(toy)[p],) * 2] * len(group)
    if name in {"gapo", "gapo_seq"}:
        low, high = (0.2, 0.28) if name == "gapo" else (3e-3, 5e-3)
        k, c = len(group), sum(map(right, group))
        share = (k - c) / (k - 1)
        exact = spec.get("clip", {}).get("form") == "exact"
        room = math.exp(share * math.log(1 + high)) - 1 if exact else low + (high - low) * share
        return [(low, room if right(row) else low) for row in group]
    if name == "ppo_lambda":
        targets = [math.exp(a / 5.0) for a in A]
        return [(1 - (min(1.0, r) - 0.2), max(1.0, r) + 0.2 - 1) for r in targets]
    return [LOW_HIGH.get(name, (0.2, 0.2))] * len(group)


def agpo_bounds(toy: Problem) -> list[float]:
    """Half-widths of the first step, prompt by prompt; no step's KL is known yet."""
    entropy, usual, found = toy.entropy.tolist(), 0.0, []
    for rewards, group in zip(toy.probed, groups_of(toy), strict=False):
        n, middle = len(rewards), mean(rewards)
        sigma = math.sqrt(sum((r - middle) ** 2 for r in rewards) / (n - 1))
        votes = -sum(c / n * math.log(c / n) for c in Counter(rewards).values())
        H = mean([entropy[i] for row in group for i in ids(row)])
        heat = min(max(H / ((usual or H) + 1e-8), 0.5), 1.5)
        usual = 0.01 * H + 0.99 * usual if usual else H
        found.append(min(max(0.2 * heat * (1 + 0.1 * votes) / (1 + sigma), 0.05), 0.4))
    return found


def price(name: str, A: list[float]) -> float:
    """QUATRO's lambda: KL of the weights exp(A / lambda) against equal ones is 0.05."""
    if name != "quatro" or not any(A):
        return 0.0
    low, high = 1e-3, 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        weights = [math.exp((a - max(A)) / middle) for a in A]
        weights = [w / sum(weights) for w in weights]
        kl = sum(w * math.log(w * len(A)) for w in weights if w > 0)
        low, high = (low, middle) if kl < 0.05 else (middle, high)
    return high


# Gains and their derivative by the log-prob; for a ratio of rows by the mean log-prob of the row.


def gain(spec: dict[str, Any], t: Token) -> tuple[float, float]:
    name = spec["preset"]
    if name in {"cispo", "f_cispo"}:
        weight = min(max(t.ratio, 1 - t.low), 1 + t.high)
        return weight * t.A * t.logp, weight * t.A
    if name == "sapo":
        tau = 1.0 if t.A > 0 else 1.05
        gate = 1 / (1 + math.exp(-tau * (t.ratio - 1)))
        return 4 / tau * gate * t.A, 4 * gate * (1 - gate) * t.ratio * t.A
    if name == "rloo":
        return t.A * t.logp, t.A
    if name == "quatro":
        value = t.ratio * (t.A - t.price * math.log(t.ratio))
        return value, value
    free = t.ratio * t.A
    held = min(max(t.ratio, 1 - t.low), 1 + t.high) * t.A
    value, slope = (free, free) if free <= held else (held, 0.0)
    dual = spec.get("surrogate", {}).get("dual", 3.0) if name == "codapo" else math.inf
    return (dual * t.A, 0.0) if t.A < 0 and value < dual * t.A else (value, slope)


def vetoed(spec: dict[str, Any], A: float, ratios: list[float]) -> list[bool]:
    """What comes after the first token that the policy hardly gives any more."""
    threshold, fired, found = spec.get("veto", {}).get("threshold", 0.2), False, []
    for ratio in ratios:
        found.append(spec["preset"] == "mu_grpo" and A < 0 and fired)
        fired = fired or ratio < threshold
    return found


def shares(name: str, row: Row, toy: Problem) -> tuple[float, float]:
    """What one token's gain, and its divergence, is divided by."""
    n, tokens = len(toy.rows), sum(each.length for each in toy.rows)
    of_row = n * row.length
    average = {"dr_grpo": n * MAX_LENGTH, "rloo": n}.get(name, tokens if name in TOKEN_MEAN else of_row)
    group = groups_of(toy)[row.group]
    return average, sum(each.length for each in group) * n / toy.G if name == "agpo" else average


def restraint(name: str, A: float, d: float) -> tuple[float, float]:
    """The weighted divergence from the reference, and its derivative by the log-prob."""
    if name == "agpo":
        return 0.03 * -d, 0.03
    weight = {"mdp": 0.01 if A >= 0 else 0.025}.get(name, 0.0)
    return weight * (math.exp(d) - d - 1), weight * (1 - math.exp(d))


def loops_loss(spec: dict[str, Any], toy: Problem) -> tuple[float, list[float]]:
    """Loss of the whole problem and its derivative by every log-prob."""
    name = spec["preset"]
    loss, slope = 0.0, [0.0] * len(toy.theta)
    for p, (group, virtual) in enumerate(zip(groups_of(toy), virtual_rewards(spec, toy), strict=True)):
        rewards = [float(row.reward or 0) for row in group]
        if name == "dapo":  # the last fifth of the limit costs up to 1
            soft = MAX_LENGTH * 4 // 5
            for g, row in enumerate(group):
                rewards[g] += min(0.0, (soft - row.length) / (MAX_LENGTH - soft))
        A = [
            a * f for a, f in zip(advantages(spec, rewards, virtual), factors(spec, group, toy), strict=True)
        ]
        lambda_ = price(name, A)
        for row, a, (low, high) in zip(group, A, bounds(spec, p, toy, A), strict=True):
            loss += row_loss(spec, row, toy, Token(a, 0.0, 0.0, low, high, lambda_), slope)
    return loss, slope


def row_loss(spec: dict[str, Any], row: Row, toy: Problem, t: Token, slope: list[float]) -> float:
    """Loss of one row; its derivatives are added to `slope`."""
    name, loss = spec["preset"], 0.0
    theta, old, ref, engine = (x.tolist() for x in (toy.theta, toy.old, toy.ref, toy.engine))
    share, kl_share = shares(name, row, toy)
    ratios = [math.exp(theta[i] - old[i]) for i in ids(row)]
    left_out = vetoed(spec, t.A, ratios)
    if name in SEQUENCE:
        ratios = [math.exp(mean([theta[i] - old[i] for i in ids(row)]))] * row.length
    for i, ratio, out in zip(ids(row), ratios, left_out, strict=True):
        t.ratio, t.logp = ratio, theta[i]
        value, by_logp = (0.0, 0.0) if out else gain(spec, t)
        gap = min(math.exp(old[i] - engine[i]), 2.0)
        kl, kl_by_logp = restraint(name, t.A, ref[i] - theta[i])
        loss += kl / kl_share - gap * value / share
        slope[i] += kl_by_logp / kl_share
        for j in ids(row) if name in SEQUENCE else [i]:
            slope[j] -= gap * by_logp / share / (row.length if name in SEQUENCE else 1)
    return loss
