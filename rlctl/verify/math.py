"""Mathematical answers: exact comparison here, symbolic comparison in a process that can be killed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from rlctl.types import Prompt, Verdict
from rlctl.verify import MathVerifier
from rlctl.verify.base import BuiltVerifier, failed, golds, graded, guarded
from rlctl.verify.compare import Comparison, expressions
from rlctl.verify.extract import locate
from rlctl.verify.worker import WorkerError, WorkerPool


class MathJudge(BuiltVerifier):
    """Judges the extracted answer: exactly where that can be done, else symbolically by math-verify."""

    def __init__(self, spec: MathVerifier) -> None:
        self.name = f"math (math-verify {version('math-verify')})"
        self._spec = spec
        self._pool: WorkerPool | None = None
        self._lock = threading.Lock()

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Wrong with the error `deadline` where the comparison hangs."""
        return guarded(lambda: self._judge(prompt, text))

    def _judge(self, prompt: Prompt, text: str) -> Verdict:
        answer, marked = locate(text)
        return replace(self._compare(prompt, answer), marked=marked)

    def _compare(self, prompt: Prompt, answer: str | None) -> Verdict:
        if answer is None:
            return graded(False, None, "no answer found")
        found = [Comparison(gold, answer) for gold in golds(prompt)]
        if not found:
            return graded(False, answer, "there is no gold answer")
        unsure = [one for one in found if one.equal is None]
        if unsure and not any(one.equal for one in found):
            pairs = list(dict.fromkeys(pair for one in unsure for pair in one.pairs))
            try:
                known = dict(zip(pairs, self._workers().call("grade", pairs), strict=True))
            except WorkerError as error:
                return failed(str(error), answer)
            found = [Comparison(gold, answer, known) for gold in golds(prompt)]
        best = next((one for one in found if one.equal), found[0])
        return graded(bool(best.equal), answer, best.reason)

    def check_golds(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts of which no gold can be understood. Starts the workers, for the answers to come."""
        bad = set(self.unparseable(gold for prompt in prompts for gold in golds(prompt)))
        return [prompt for prompt in prompts if bad.issuperset(golds(prompt))]

    def unparseable(self, texts: Iterable[str]) -> list[str]:
        """The golds in which something is no number, word or expression: only the same text equals them."""
        needed = {text: found for text in dict.fromkeys(texts) if (found := expressions(text))}
        pool = self._workers()

        def parses(text: str) -> bool:
            try:
                return all(pool.call("parses", expression) for expression in needed[text])
            except WorkerError:
                return False

        with ThreadPoolExecutor(self._spec.workers) as threads:
            good = list(threads.map(parses, needed))
        return [text for text, fine in zip(needed, good, strict=True) if not fine]

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()

    def _workers(self) -> WorkerPool:
        with self._lock:
            if self._pool is None:
                script = Path(__file__).with_name("symbolic.py")
                self._pool = WorkerPool(script, self._spec.workers, self._spec.deadline_s)
            return self._pool
