"""The judge that a data task brings along, by the name of the prompt's set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlctl.errors import UserError
from rlctl.types import Prompt, Verdict
from rlctl.verify.base import BuiltVerifier, guarded

TaskJudge = Callable[[Prompt, str], Verdict]


class TaskVerifier(BuiltVerifier):
    """`judges` maps the name of a set to its judge; other sets go to `fallback`.

    Raises:
        UserError: a prompt of a set without a judge, and there is no fallback.
    """

    def __init__(self, judges: Mapping[str, TaskJudge], fallback: BuiltVerifier | None = None) -> None:
        self._judges = dict(judges)
        self._fallback = fallback
        names = [f"task {name}" for name in self._judges] + ([fallback.name] if fallback else [])
        self.name = ", ".join(names)

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """The task's own word where it has one."""
        judge = self._judges.get(prompt.set)
        if judge is None:
            return self._other(prompt).judge(prompt, text)
        return guarded(lambda: judge(prompt, text))

    def check_golds(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """What the fallback says of the prompts that go to it; a task understands its own golds."""
        rest = [prompt for prompt in prompts if prompt.set not in self._judges]
        return self._other(rest[0]).check_golds(rest) if rest else []

    def close(self) -> None:
        """Close the fallback."""
        if self._fallback is not None:
            self._fallback.close()

    def _other(self, prompt: Prompt) -> BuiltVerifier:
        if self._fallback is None:
            raise UserError(
                f"the data set `{prompt.set}` has no judge of its own", "name a `verifier` in the recipe"
            )
        return self._fallback
