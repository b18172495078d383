"""What `rlctl compare` does: is one setting better than another, over the same seeds and problems?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rlctl.compare.measure import Side, measures, per_million_tokens, same_problems
from rlctl.compare.rule import LEVEL, MIN_SEEDS, Difference, verdicts
from rlctl.errors import UserError
from rlctl.results import Setting, Target, find

RULE = (
    f"seeds are the unit: problems averaged first, two-sided paired t-test over the seeds' differences at "
    f"{LEVEL:.0%}, Holm's correction where several are compared, fewer than {MIN_SEEDS} seeds decide nothing"
)
UNEVEN = 0.05  # a difference in generated tokens that a reader must be told of


def compare(names: Sequence[str], metric: str | None = None, baseline: str | None = None) -> dict[str, Any]:
    """Compare the settings of a sweep, of sweeps by label, or runs that differ in more than their seed.

    Args:
        names: of runs or sweeps.
        metric: `SET/pass@K`; None is the first set's smallest k.
        baseline: label of the setting that the others are compared with; None is the first.

    Raises:
        UserError: nothing to compare, no such metric or label, or not the same problems.
    """
    pairs = list(_pairs([find(name) for name in names], baseline))
    sides = [(Side.of(first), Side.of(second)) for first, second in pairs]
    known = measures([side for pair in sides for side in pair])
    metric = (metric or next(iter(known))).removeprefix("eval/")
    if metric not in known:
        raise UserError(f"{metric}: not evaluated in all of them", f"one of: {', '.join(known)}")
    for first, second in sides:
        same_problems(first, second, metric)
    judged = verdicts([_difference(first, second, metric) for first, second in sides])
    return {
        "metric": metric,
        "rule": RULE,
        "comparisons": [
            _compared(first, second, metric, known) | {"p_corrected": p, "verdict": verdict}
            for (first, second), (p, verdict) in zip(sides, judged, strict=True)
        ],
        "left_out": sorted({missing for pair in sides for side in pair for missing in side.left_out}),
    }


def _pairs(targets: Sequence[Target], baseline: str | None) -> Iterator[tuple[Setting, Setting]]:
    first, *others = targets
    if any(target.is_sweep != first.is_sweep for target in others):
        raise UserError("a sweep and a run do not compare", "name sweeps alone, or runs alone")
    if not first.is_sweep:
        yield from _against(_grouped([target.settings[0] for target in targets]), baseline)
    elif not others:
        yield from _against(first.settings, baseline)
    else:
        for other in others:
            yield from _matched(first, other)


def _against(settings: Sequence[Setting], baseline: str | None) -> Iterator[tuple[Setting, Setting]]:
    labels = [setting.label for setting in settings]
    if len(settings) < 2:
        raise UserError(f"{labels[0]} is one setting alone", "name another run or sweep to compare it with")
    if baseline not in (None, *labels):
        raise UserError(f"--baseline {baseline}: no such setting", f"one of: {'; '.join(labels)}")
    first = settings[labels.index(baseline or labels[0])]
    yield from ((first, other) for other in settings if other is not first)


def _matched(first: Target, second: Target) -> Iterator[tuple[Setting, Setting]]:
    """Pair what two sweeps call alike; where each has but one setting, these."""
    known = {setting.label: setting for setting in first.settings}
    alike = [(known[other.label], other) for other in second.settings if other.label in known]
    if not alike and len(first.settings) == len(second.settings) == 1:
        alike = [(first.settings[0], second.settings[0])]
    if not alike:
        raise UserError(
            f"{first.name} and {second.name} have no setting in common", "compare sweeps of one kind"
        )
    for a, b in alike:
        yield _renamed(a, f"{first.name}: {a.label}"), _renamed(b, f"{second.name}: {b.label}")


def _renamed(setting: Setting, label: str) -> Setting:
    return Setting(label, setting.values, setting.results)


def _grouped(settings: Sequence[Setting]) -> list[Setting]:
    """Take runs together that differ in their seed alone."""

    def key(setting: Setting) -> str:
        own = {"seed", "name", "output_dir", "track", "resources"}
        return repr({k: v for k, v in setting.results[0].recipe.items() if k not in own})

    order = {key(setting): place for place, setting in reversed(list(enumerate(settings)))}
    found = []
    for _, group in groupby(sorted(settings, key=lambda s: order[key(s)]), key=key):
        runs = list(group)
        found.append(Setting(runs[0].label, {}, tuple(run.results[0] for run in runs)))
    return found


def _difference(first: Side, second: Side, metric: str) -> Difference:
    seeds = first.common(second)
    return Difference.of(*([side.value(seed, metric) for seed in seeds] for side in (first, second)))


def _compared(first: Side, second: Side, metric: str, known: Sequence[str]) -> dict[str, Any]:
    found, seeds = _difference(first, second, metric), first.common(second)
    tokens = [side.tokens(seeds) for side in (first, second)]
    return {
        "setting": second.label,
        "baseline": first.label,
        "seeds": list(seeds),
        "difference": found.interval,
        "p": found.p,
        "per_million_tokens": per_million_tokens(first, second, metric),
        "tokens": tokens[1],
        "baseline_tokens": tokens[0],
        "same_cost": abs(tokens[1] - tokens[0]) <= UNEVEN * max(tokens),
        "others": {other: _difference(first, second, other).interval for other in known if other != metric},
    }


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the comparison as lines for people."""
    metric, compared = found["metric"], found["comparisons"]
    for one in compared:
        yield _sentence(one, metric, len(compared))
        per = one["per_million_tokens"]
        if per:
            yield f"  gain per million tokens {_interval(per)}"
        if not one["same_cost"]:
            yield f"  at another cost: {one['tokens']:,.0f} against {one['baseline_tokens']:,.0f} tokens"
        for name, interval in one["others"].items():
            yield f"  {name} {_interval(interval)}"
    yield from (f"left out: {line}" for line in found["left_out"])
    yield f"rule: {found['rule']}"


def _sentence(one: Mapping[str, Any], metric: str, several: int) -> str:
    said = {
        "better": "is better than",
        "worse": "is worse than",
        "not shown": "against",
        "too few seeds": "against",
    }[one["verdict"]]
    end = {"not shown": "not shown: ", "too few seeds": f"too few seeds ({len(one['seeds'])}) to say: "}
    p = "" if one["p_corrected"] is None else f", p = {one['p_corrected']:.2g}"
    corrected = f" corrected for {several}" if several > 1 and p else ""
    figures = f"{metric} {_interval(one['difference'])} over seeds {', '.join(map(str, one['seeds']))}"
    return f"{one['setting']} {said} {one['baseline']}: {end.get(one['verdict'], '')}{figures}{p}{corrected}"


def _interval(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:+.3f} [{estimate['low']:+.3f}, {estimate['high']:+.3f}]"
