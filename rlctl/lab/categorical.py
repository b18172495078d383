"""Policy gradient over very many actions: which correct ones survive? Figure 2 of 2602.06717.

The paper states the loss (1/N) sum_j (R_j - mean R) p_j. Taken literally, its gradient carries a factor
p_j and shows no return of the retained mass at large N; with the ratio p_j / sg(p_j) it does. It says
"gradient ascent"; plain steps of that size would not move, so this is Adam, as in the setup that it
follows (2510.01180).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlctl.lab.finding import Curve, Finding, Panel, Row

Array = NDArray[np.float64]
RATE, BETA1, BETA2, EPSILON = 1e-2, 0.9, 0.999, 1e-8
Form = Literal["ratio", "literal"]


def regimes(actions: int) -> tuple[int, ...]:
    """Return group sizes that show the three regimes: more actions need larger groups."""
    if actions < 64_000:
        return 2, 8, 32, 128, 512, 2048, 8192, 32768
    return 2, 32, 64, 128, 256, 1024, 8192, 32768, 65536, 131072


@dataclass(frozen=True)
class World:
    """A softmax policy over `actions`, 10 of 128 correct; reward 1 for those and -1 for the rest."""

    actions: int = 12_800
    form: Form = "ratio"
    steps: int = 1000

    @property
    def correct(self) -> int:
        """How many actions are correct; they come first."""
        return self.actions * 10 // 128

    def logits(self) -> Array:
        """Return the start: 5 for one anchor, 3 for the other correct actions, 0 for the wrong ones."""
        logits = np.zeros(self.actions)
        logits[: self.correct] = 3.0
        logits[0] = 5.0
        return logits

    def gradient(self, p: Array, counts: NDArray[np.int64], gamma: float) -> Array:
        """Return the gradient of the objective by the logits, from how often each action was sampled."""
        size, solved = counts.sum(), counts[: self.correct].sum()
        success = solved / size
        w: Array = counts * ((1 - success) ** gamma / size)
        w[: self.correct] *= 2 * (1 - success)  # R - mean R, with mean R = 2 success - 1
        w[self.correct :] *= -2 * success
        if self.form == "literal":
            w *= p
            w -= p * w.sum()
        return w  # in the ratio form sum w = 0, so the softmax's own -p sum w vanishes


def softmax(logits: Array) -> Array:
    """Return probabilities."""
    p: Array = np.exp(logits - logits.max())
    p /= p.sum()
    return p


class Adam:
    """Ascent with bias correction (1412.6980), in place: arrays are long and steps many."""

    def __init__(self, length: int) -> None:
        self.mean, self.square = np.zeros(length), np.zeros(length)
        self.step = 0

    def raise_(self, logits: Array, gradient: Array) -> None:
        """Move `logits` one step; `gradient` is used up as scratch."""
        self.step += 1
        self.mean *= BETA1
        self.mean += (1 - BETA1) * gradient
        self.square *= BETA2
        gradient *= gradient
        gradient *= 1 - BETA2
        self.square += gradient
        np.divide(self.square, 1 - BETA2**self.step, out=gradient)
        np.sqrt(gradient, out=gradient)
        gradient += EPSILON
        np.divide(self.mean, gradient, out=gradient)
        gradient *= RATE / (1 - BETA1**self.step)
        logits += gradient


def simulate(world: World, size: int, gamma: float, seed: int) -> tuple[float, float]:
    """Train once with groups of `size`; return the correct mass and the retained share of its start.

    Retained = 1 - sum over correct actions of max(0, p_0 - p_T), divided by their p_0 in sum.
    """
    rng = np.random.default_rng(seed)
    logits, adam = world.logits(), Adam(world.actions)
    start = softmax(logits)[: world.correct]
    for _ in range(world.steps):
        p = softmax(logits)
        adam.raise_(logits, world.gradient(p, rng.multinomial(size, p), gamma))
    end = softmax(logits)[: world.correct]
    return float(end.sum()), float(1 - np.maximum(start - end, 0).sum() / start.sum())


def run(
    *,
    actions: int,
    form: Form,
    sizes: Sequence[int],
    gammas: Sequence[float],
    seeds: Sequence[int],
    say: Callable[[str], None],
) -> Finding:
    """Train every size, gamma and seed; a row is the mean over seeds."""
    world = World(actions, form)
    rows: list[Row] = []
    for gamma in gammas:
        for size in sizes:
            ends = [simulate(world, size, gamma, seed) for seed in seeds]
            correct, retained = zip(*ends, strict=True)
            rows.append(
                {
                    "gamma": gamma,
                    "N": size,
                    "correct_mass": fmean(correct),
                    "retained": fmean(retained),
                    "retained_min": min(retained),
                    "retained_max": max(retained),
                }
            )
            say(f"gamma {gamma:g}, N {size}: retained {fmean(retained):.3f}")
    panels = [
        _panel("Retained mass of correct actions", "retained", rows, gammas),
        _panel("Mass of correct actions", "correct_mass", rows, gammas),
    ]
    return Finding({"categorical": rows}, panels)


def _panel(title: str, column: str, rows: Sequence[Row], gammas: Sequence[float]) -> Panel:
    curves = []
    for gamma in gammas:
        mine = [row for row in rows if row["gamma"] == gamma]
        x, y = [float(row["N"]) for row in mine], [float(row[column]) for row in mine]
        curves.append(Curve(f"gamma {gamma:g}", x, y))
    return Panel(title, "group size N", column.replace("_", " "), curves, log_x=True)
