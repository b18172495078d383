"""Fixed responses, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rlctl.types import Completion, Request, Weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Script = Callable[[Request], str | Completion | Exception]


class ScriptedEngine:
    """Answers with `responses`, chosen by the request's seed, or with what `script` returns.

    A text becomes its tokens and an EOS, cut at max_tokens, each of log-prob -1. An exception that
    `script` returns fails that request alone; one that it raises fails the engine.
    """

    same_program = False
    swaps = False
    tolerance: float | None = None

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        responses: Sequence[str],
        eos_id: int,
        script: Script | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.eos_id = eos_id
        self.script: Script = script or (lambda request: responses[request.seed % len(responses)])
        self.version = 0

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """Yield a completion for every request, in order."""
        for request in requests:
            answer = self.script(request)
            if isinstance(answer, str):
                answer = self._completion(request, answer)
            elif isinstance(answer, Exception):
                answer = Completion(request.index, (), (), "error")
            yield answer

    def refresh(self, weights: Weights, version: int) -> None:
        """Take note of the version: a script has no weights."""
        self.version = version

    def resting(self) -> AbstractContextManager[None]:
        """Lend nothing."""
        return nullcontext()

    def close(self) -> None:
        """Leave nothing behind."""

    def _completion(self, request: Request, text: str) -> Completion:
        ids = (*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.eos_id)
        cut = ids[: request.max_tokens]
        return Completion(request.index, cut, (-1.0,) * len(cut), "stop" if cut == ids else "length")
