"""Which stages of an algorithm go together: what is refused, and what a reader should be warned of."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.algorithm import Algorithm

READS = {"controlled": "clip", "target": "price"}  # a clip, and the controller whose numbers it takes
LATE_CLIPS = ("controlled", "group", "target", "dual")  # made for ratios that are not 1


def problems(algorithm: Algorithm) -> Iterator[tuple[str, str]]:
    """Yield what is refused: the keys that take part, then what is wrong, a newline, what to do."""
    control = [str(entry.kind) for entry in algorithm.control]
    clip, admit = algorithm.clip.kind, algorithm.admit.kind
    twice = sorted({kind for kind in control if control.count(kind) > 1})
    missing = READS.get(clip, "") if READS.get(clip) not in control else ""
    unread = [kind for kind in READS.values() if kind in control and READS.get(clip) != kind]
    probing = any("probe" in entry.needs for entry in algorithm.control)
    collapse, focus = "collapse" in control, "focus" in control
    rules = (
        (
            bool(twice),
            "algorithm.control",
            f"has more than one of kind {', '.join(twice)}\nkeep one of them",
        ),
        (
            bool(missing),
            "algorithm.control algorithm.clip",
            f"`clip: {clip}` takes what the controller {missing} sets, and there is none"
            f"\nadd {{kind: {missing}}} to algorithm.control, or set another clip",
        ),
        (
            bool(unread),
            "algorithm.clip algorithm.control",
            f"is {clip}, so nothing reads what the controller {', '.join(unread)} sets"
            f"\nset algorithm.clip={{kind: {' or '.join(k for k, v in READS.items() if v in unread)}}}",
        ),
        (
            (clip == "dual") != (algorithm.surrogate.kind == "priced"),
            "algorithm.surrogate algorithm.clip",
            "and algorithm.clip do not fit: `clip: dual` sets a price that `surrogate: priced` alone reads"
            "\nset both of them, or neither",
        ),
        (
            probing and algorithm.probe is None,
            "algorithm.probe",
            "is null, but a controller reads a probe\nset algorithm.probe={samples: 8}",
        ),
        (
            collapse and admit != "everything",
            "algorithm.admit algorithm.control",
            f"is {admit}, which drops the groups that the controller collapse repairs"
            "\nset algorithm.admit={kind: everything}, or take the controller out",
        ),
        (
            collapse and algorithm.advantage.kind == "dual_anchor",
            "algorithm.advantage algorithm.control",
            "is dual_anchor, which looks at no virtual rewards: the controller collapse would do nothing"
            "\nset algorithm.advantage={kind: zscore, std: population}",
        ),
        (
            focus and (admit != "everything" or algorithm.staging.ahead > 1),
            "algorithm.staging.ahead algorithm.admit algorithm.control",
            "must be 1, and algorithm.admit everything, for the controller focus, which chooses the "
            "questions of every second step\nchange them, or take the controller out",
        ),
        (
            algorithm.ratio_temperature == "one" and algorithm.correction.kind != "none",
            "algorithm.ratio_temperature algorithm.correction",
            "is one, so the learner's log-probs are not of the law that was sampled, and their gap to the "
            "engine's means nothing\nset algorithm.correction={kind: none}",
        ),
        (
            getattr(algorithm.veto, "recount", None) is True and algorithm.aggregate != "sequence",
            "algorithm.veto.recount algorithm.aggregate",
            f"spreads the weight of each row, but algorithm.aggregate is {algorithm.aggregate}"
            "\nset algorithm.aggregate=sequence, or algorithm.veto.recount=false",
        ),
    )
    return ((keys, text) for wrong, keys, text in rules if wrong)


def warnings(algorithm: Algorithm) -> Iterator[str]:
    """Yield what is allowed but cannot act, or acts against another stage."""
    control = {str(entry.kind) for entry in algorithm.control}
    factors = {str(entry.kind) for entry in algorithm.reweight}
    fresh, clip, veto = not algorithm.staging.stale, algorithm.clip.kind, algorithm.veto
    probing = any("probe" in entry.needs for entry in algorithm.control)
    collapse = "collapse" in control
    notes = (
        (
            fresh and clip in LATE_CLIPS,
            f"algorithm.clip: {clip} cannot act: with one update for each rollout every ratio is 1; raise "
            "algorithm.staging.minibatches, epochs or ahead",
        ),
        (
            fresh and veto is not None and veto.kind == "suffix",
            "algorithm.veto cannot act: with one update for each rollout no token is stale",
        ),
        (
            algorithm.probe is not None and not probing,
            "algorithm.probe is drawn and paid for, but no controller reads it",
        ),
        (
            collapse and "focal" in factors,
            "reweight: focal gives all-correct groups the factor 0, so the controller collapse repairs "
            "all-wrong ones only",
        ),
        (
            collapse and "codapo" in factors,
            "reweight: codapo gives equal groups its offset alone and nearly undoes the controller collapse",
        ),
        (
            collapse and bool(getattr(algorithm.advantage, "homogeneous", None)),
            "advantage.homogeneous acts only on groups that the controller collapse leaves alone",
        ),
        (
            "focal" in factors and clip == "group",
            "reweight: focal and clip: group both hold easy prompts back: try each alone before both",
        ),
    )
    return (text for true, text in notes if true)
