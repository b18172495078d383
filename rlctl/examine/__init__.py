"""What `rlctl eval` does: from names to figures, on a terminal or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from rlctl.errors import Interrupted
from rlctl.evaluate.pairs import differences
from rlctl.examine import show
from rlctl.examine.exam import Examined, examine
from rlctl.examine.target import Asked, find
from rlctl.interrupt import EXIT_CODE, Stopper
from rlctl.track.console import printable


def run(asked: Asked, *, as_json: bool) -> int:
    """Evaluate every target, print and store what is found; return the exit code.

    Raises:
        UserError: what a user can mend; what was generated so far is kept.
    """
    targets = find(asked)
    try:
        with Stopper() as stop, stop.abandonable():
            first, *others = [examine(target, _say) for target in targets]
    except Interrupted:
        _say("interrupted: what was generated is kept, the same command goes on")
        return EXIT_CODE
    records = [one.record for one in (first, *others)]
    compared = [_compare(first, other) for other in others]
    if as_json:
        found = {"targets": records, "differences": compared} if others else first.record
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join([*show.reports(records), *show.differences(compared)]))
    return 0


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _compare(first: Examined, second: Examined) -> dict[str, Any]:
    return {
        "target": second.record["target"],
        "step": second.record["step"],
        "against": first.record["target"],
        "against_step": first.record["step"],
        "sets": differences(first.judged, second.judged, sorted(set(first.ks) & set(second.ks))),
    }
