"""Several verifiers as one: a weighted sum of rewards, and correctness from the parts that are no shaping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlctl.types import Prompt, Verdict
from rlctl.verify.base import BuiltVerifier, failed


@dataclass(frozen=True, slots=True)
class Part:
    """One verifier of the sum; `label` is its key in `Verdict.parts`."""

    label: str
    verifier: BuiltVerifier
    weight: float = 1.0
    shaping: bool = False


class WeightedJudge(BuiltVerifier):
    """Reward = sum of weight x reward of the part.

    Correct where there are parts that are no shaping and each of them is correct. One part that is not
    judged leaves the whole unjudged; one part that fails fails the whole.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)
        self.name = " + ".join(f"{part.weight:g} × {part.verifier.name}" for part in self._parts)

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Ask every part; `parts` holds their rewards before the weights."""
        verdicts = [(part, part.verifier.judge(prompt, text)) for part in self._parts]
        rewards = {part.label: v.reward for part, v in verdicts if v.reward is not None}
        counting = [v for part, v in verdicts if not part.shaping]
        answer = next((v.answer for v in counting if v.answer is not None), None)
        errors = [f"{part.label}: {v.error}" for part, v in verdicts if v.error is not None]
        if errors:
            return failed("; ".join(errors), answer, rewards)
        whole = len(rewards) == len(self._parts)
        return Verdict(
            reward=sum(part.weight * rewards[part.label] for part in self._parts) if whole else None,
            correct=bool(counting) and all(v.correct for v in counting),
            answer=answer,
            parts=rewards,
            reason="; ".join(v.reason for v in counting if v.reason) or None,
            marked=all(v.marked for v in counting),
        )

    def check_golds(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts whose gold some part that counts cannot understand."""
        bad = {p.uid for part in self._parts if not part.shaping for p in part.verifier.check_golds(prompts)}
        return [prompt for prompt in prompts if prompt.uid in bad]

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.verifier.close()
