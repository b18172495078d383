"""A coin in place of a reward: what a run gains all the same is no effect of the reward (2506.10947)."""

from __future__ import annotations

from rlctl.seeds import derive_seed
from rlctl.types import Prompt, Verdict
from rlctl.verify import RandomVerifier
from rlctl.verify.base import BuiltVerifier


class RandomJudge(BuiltVerifier):
    """Reward 1 for a share of all answers, 0 for the others; none is ever correct.

    The coin is a hash of the question's uid and the answer, so it needs no state and no order: the same
    answer to the same question gets the same coin, in one group, in a later epoch and under another seed.
    """

    name = "random"

    def __init__(self, spec: RandomVerifier) -> None:
        self._share = spec.share

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Toss the answer's coin."""
        coin = derive_seed("coin", prompt.uid, ascii(text)) / 2**63  # ascii: half a surrogate is a text too
        return Verdict(reward=float(coin < self._share), correct=False, reason="a coin")
