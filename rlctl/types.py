"""What travels between the rooms: prompts, requests, completions, verdicts, groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch

Finish = Literal["stop", "length", "error"]
Message = tuple[str, str]  # (role, content)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. `uid` is `set:id`, unique over all sources of a run, whatever its text."""

    uid: str
    messages: tuple[Message, ...]
    gold: str | tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)  # what a task's own judge needs
    demo: str | None = None  # a correct response, for the warm start of the tiny model
    ids: tuple[int, ...] = ()  # tokens, filled in once by data.render

    @property
    def set(self) -> str:
        """Name of the data set that the prompt came from."""
        return self.uid.partition(":")[0]

    @property
    def text(self) -> str:
        """The messages as plain text, for people and verifiers."""
        return "\n".join(content for _, content in self.messages)


@dataclass(frozen=True, slots=True)
class Request:
    """One completion asked of an engine, with its own temperature and its own seed."""

    index: int  # position in the list of requests; comes back with the completion
    ids: tuple[int, ...]
    seed: int
    max_tokens: int
    temperature: float = 1.0  # 0 is greedy, in evaluation only
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled token ids, untouched, with their log-probs under the law that was really sampled."""

    index: int
    ids: tuple[int, ...]  # a sampled EOS is the last of them
    logps: tuple[float, ...]  # nats, one a token
    finish: Finish  # the engine's own word; "length" means truncated


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one response. `correct` never depends on shaping parts."""

    reward: float | None  # None: not judged; left out of the group's statistics, advantage 0
    correct: bool
    answer: str | None = None  # what was extracted; None: nothing could be parsed
    parts: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None  # why the verifier itself failed; such an answer counts as wrong
    reason: str | None = None  # why it is correct or wrong, in a few plain words
    marked: bool = True  # False: nothing in the response marks the answer as such; it was guessed


@dataclass(frozen=True, slots=True)
class Sample:
    """A judged completion."""

    completion: Completion
    text: str
    verdict: Verdict
    temperature: float


@dataclass(frozen=True, slots=True)
class Group:
    """One prompt and its G samples."""

    prompt: Prompt
    samples: tuple[Sample, ...]


class PromptSource(Protocol):
    """Endless supply of training prompts, reshuffled each epoch from (seed, epoch)."""

    def take(self, n: int) -> list[Prompt]:
        """Draw the next `n` prompts."""

    def get(self, uid: str) -> Prompt:
        """Look a prompt up."""

    def state(self) -> dict[str, Any]:
        """Say, as JSON, where the supply stands."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on exactly from a `state`."""


class Verifier(Protocol):
    """Judges responses; may be called from several threads at once. `name` goes into results."""

    name: str

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Judge one response; never raises for what a model wrote."""

    def close(self) -> None:
        """Let go of workers."""


Weights = Callable[[], Iterable[tuple[str, "torch.Tensor"]]]


class Engine(Protocol):
    """Token ids in, token ids out: never text.

    `same_program`: the learner's own forward pass sampled, so their log-probs need no correction.
    `swaps`: it takes an adapter beside the weights, not added in.
    `tolerance`: largest mean |log-prob gap| to the learner that is rounding, at temperature 1; None:
    there is nothing to compare.
    """

    same_program: bool
    swaps: bool
    tolerance: float | None

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """Yield one completion a request, as they finish."""

    def refresh(self, weights: Weights, version: int) -> None:
        """Sample from these weights from now on."""

    def resting(self) -> AbstractContextManager[None]:
        """Lend the engine's memory to the learner."""

    def close(self) -> None:
        """Let go of processes and memory."""
