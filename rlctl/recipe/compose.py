"""Which stages of an algorithm go together: what is refused, and what a reader should be warned of."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.algorithm import Algorithm

READS = {"controlled": "clip", "target": "price"}  # a clip, and the controller whose numbers it takes
LATE_CLIPS = ("controlled", "group", "target", "dual")  # made for ratios that are not 1

# The keys that take part, the likeliest to mend first; what is wrong, a newline, what to do. A text
# names what it speaks of, since any of the keys may stand before it.
Problems = Iterator[tuple[str, str]]


def problems(algorithm: Algorithm) -> Problems:
    """Yield what is refused."""
    for rules in (_controllers, _bounds, _equal_groups, _stages):
        yield from rules(algorithm)


def _controllers(algorithm: Algorithm) -> Problems:
    control = _kinds(algorithm)
    if twice := sorted({kind for kind in control if control.count(kind) > 1}):
        yield (
            "algorithm.control",
            f"more than one controller of kind {', '.join(twice)}\nkeep one of them",
        )
    if {"temperature", "slots"} <= set(control):
        yield (
            "algorithm.control",
            "the controllers temperature and slots both set the temperatures of a group\nkeep one of them",
        )
    if _probing(algorithm) and algorithm.probe is None:
        yield (
            "algorithm.probe algorithm.control",
            "algorithm.probe is null, but a controller reads a probe\nset algorithm.probe={samples: 8}",
        )


def _bounds(algorithm: Algorithm) -> Problems:
    control, clip, surrogate = _kinds(algorithm), algorithm.clip.kind, algorithm.surrogate.kind
    wanted = READS.get(clip)
    if wanted is not None and wanted not in control:
        yield (
            "algorithm.control algorithm.clip",
            f"`clip: {clip}` takes what the controller {wanted} sets, and there is none"
            f"\nadd {{kind: {wanted}}} to algorithm.control, or set another clip",
        )
    if unread := [kind for kind in READS.values() if kind in control and kind != wanted]:
        readers = " or ".join(kind for kind, read in READS.items() if read in unread)
        yield (
            "algorithm.clip algorithm.control",
            f"`clip: {clip}` does not read what the controller {', '.join(unread)} sets"
            f"\nset algorithm.clip={{kind: {readers}}}, or take the controller out",
        )
    if (clip == "dual") != (surrogate == "priced"):
        yield (
            "algorithm.surrogate algorithm.clip",
            "`clip: dual` and `surrogate: priced` go together: the one sets a price, the other alone reads it"
            "\nset both of them, or neither",
        )
    elif not algorithm.surrogate.bounded and clip not in ("none", "dual"):
        yield (
            "algorithm.clip algorithm.surrogate",
            f"`surrogate: {surrogate}` looks at no bounds, so `clip: {clip}` would do nothing"
            "\nset algorithm.clip={kind: none}, or another surrogate",
        )


def _equal_groups(algorithm: Algorithm) -> Problems:
    """Groups whose rewards are all equal: some stages drop what others repair."""
    advantage, admit = algorithm.advantage.kind, algorithm.admit.kind
    collapse, flat = "collapse" in _kinds(algorithm), bool(_homogeneous(algorithm))
    if (collapse or flat) and admit != "everything":
        who = "the controller collapse" if collapse else "advantage.homogeneous"
        yield (
            "algorithm.admit algorithm.control algorithm.advantage",
            f"`admit: {admit}` drops the groups that {who} repairs"
            "\nset algorithm.admit={kind: everything}, or take the repair out",
        )
    if collapse and advantage == "dual_anchor":
        yield (
            "algorithm.advantage algorithm.control",
            "`advantage: dual_anchor` looks at no virtual rewards: the controller collapse would do nothing"
            "\nset algorithm.advantage={kind: zscore, std: population}",
        )
    if algorithm.clip.kind == "dual" and (collapse or flat or advantage == "dual_anchor"):
        yield (
            "algorithm.clip algorithm.control algorithm.advantage",
            "the controller collapse, advantage.homogeneous and advantage: dual_anchor give whole groups one "
            "advantage other than 0, at which the price of `clip: dual` falls to its least"
            "\nset another clip and surrogate, or take them out",
        )


def _stages(algorithm: Algorithm) -> Problems:
    control, ahead, veto = _kinds(algorithm), algorithm.staging.ahead, algorithm.veto
    if ahead > 1 and "logp_after" in algorithm.needs:
        yield (
            "algorithm.staging.ahead algorithm.control",
            "the controllers clip and price read how far a step moves the policy; rollouts ahead of their "
            "step are compared with the policy that sampled them"
            "\nset algorithm.staging.ahead=1, or take the controller out",
        )
    if "focus" in control and ahead > 1:
        yield (
            "algorithm.staging.ahead algorithm.control",
            f"algorithm.staging.ahead is {ahead}, but the controller focus chooses the questions of every "
            "second step by the step before\nset it to 1, or take the controller out",
        )
    if "focus" in control and algorithm.admit.kind != "everything":
        yield (
            "algorithm.admit algorithm.control",
            f"`admit: {algorithm.admit.kind}` draws questions again, but the controller focus chooses them"
            "\nset algorithm.admit={kind: everything}, or take the controller out",
        )
    to_engine = veto is not None and veto.kind == "sequence"
    if algorithm.ratio_temperature == "one" and (algorithm.correction.kind != "none" or to_engine):
        yield (
            "algorithm.ratio_temperature algorithm.correction algorithm.veto",
            "`ratio_temperature: one` takes the learner's log-probs not of the law that was sampled, so "
            "their gap to the engine's means nothing"
            "\nset algorithm.correction={kind: none}, and no `veto: sequence`",
        )
    if getattr(veto, "recount", False) and algorithm.aggregate != "sequence":
        yield (
            "algorithm.veto.recount algorithm.aggregate",
            f"`veto.recount` spreads the weight of each row, but algorithm.aggregate is {algorithm.aggregate}"
            "\nset algorithm.aggregate=sequence, or algorithm.veto.recount=false",
        )


def warnings(algorithm: Algorithm) -> Iterator[str]:
    """Yield what is allowed but cannot act, or acts against another stage."""
    yield from _idle(algorithm)
    yield from _against(algorithm)


def _idle(algorithm: Algorithm) -> Iterator[str]:
    clip, veto = algorithm.clip.kind, algorithm.veto
    if not algorithm.staging.stale and clip in LATE_CLIPS:
        yield (
            f"algorithm.clip: {clip} cannot act: with one update for each rollout every ratio is 1; raise "
            "algorithm.staging.minibatches, epochs or ahead"
        )
    if not algorithm.staging.stale and veto is not None and veto.kind == "suffix":
        yield "algorithm.veto cannot act: with one update for each rollout no token is stale"
    if algorithm.probe is not None and not _probing(algorithm):
        yield "algorithm.probe is drawn and paid for, but no controller reads it"


def _against(algorithm: Algorithm) -> Iterator[str]:
    factors, by_group = {str(entry.kind) for entry in algorithm.reweight}, algorithm.clip.kind == "group"
    collapse = "collapse" in _kinds(algorithm)
    if by_group and algorithm.advantage.kind in ("zscore", "dual_anchor"):
        yield (
            "algorithm.clip: group gives rare right answers more room, made for an advantage that is not "
            "divided by the std, which favours them too: set algorithm.advantage={kind: centred}"
        )
    if by_group and "focal" in factors:
        yield "reweight: focal and clip: group both hold easy prompts back: try each alone before both"
    if collapse and "focal" in factors:
        yield (
            "reweight: focal gives all-correct groups the factor 0, so the controller collapse repairs "
            "all-wrong ones only"
        )
    if collapse and "codapo" in factors:
        yield "reweight: codapo gives equal groups its offset alone and nearly undoes the controller collapse"
    if collapse and _homogeneous(algorithm):
        yield "advantage.homogeneous acts only on groups that the controller collapse leaves alone"


def _kinds(algorithm: Algorithm) -> list[str]:
    return [str(entry.kind) for entry in algorithm.control]


def _probing(algorithm: Algorithm) -> bool:
    return any("probe" in entry.needs for entry in algorithm.control)


def _homogeneous(algorithm: Algorithm) -> float:
    return getattr(algorithm.advantage, "homogeneous", 0.0)
