"""From stored responses to outcomes: judging again costs no generation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from rlctl.evaluate.store import Row
from rlctl.evaluate.summary import Outcome
from rlctl.rollout import GIVEN_UP
from rlctl.types import Prompt, Verdict, Verifier
from rlctl.verify.guard import FailureGuard

AT_ONCE = 256  # responses


def judge(rows: Iterable[Row], prompts: Mapping[str, Prompt], verifier: Verifier) -> dict[str, list[Outcome]]:
    """Return the outcomes of each problem, by uid; equal responses to a problem are judged once.

    Raises:
        RunError: the verifier fails too often.
    """
    found: dict[str, list[Outcome]] = {uid: [] for uid in prompts}
    known: dict[tuple[str, bytes], Verdict] = {}
    guard, rows = FailureGuard(), iter(rows)
    threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="judge")

    def verdict(row: Row) -> Verdict:
        return verifier.judge(prompts[row["uid"]], row["response"])

    try:
        while some := list(islice(rows, AT_ONCE)):
            answered = {_key(row): row for row in some if row["finish"] != "error"}
            new = {key: row for key, row in answered.items() if key not in known}
            known |= zip(new, threads.map(verdict, new.values()), strict=True)
            guard.observe(known[key] for key in answered)
            for row in some:
                judged = GIVEN_UP if row["finish"] == "error" else known[_key(row)]
                found[row["uid"]].append(Outcome.of(judged, row["finish"], row["tokens"]))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    return found


def _key(row: Row) -> tuple[str, bytes]:
    text = row["response"].encode("utf-8", "surrogatepass")
    return row["uid"], hashlib.blake2b(text, digest_size=16).digest()
