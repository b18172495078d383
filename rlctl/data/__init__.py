"""Where prompts come from: sources by `kind`, and the section `data` of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlctl.spec import Seq, Spec

NAMED = ("gsm8k", "math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "svamp", "cmath")


class SourceSpec(Spec):
    """What every source has: a share in a mixture, and how many problems to take of it."""

    weight: float = Field(1.0, gt=0)  # relative share of the draws among several sources
    limit: int | None = Field(None, ge=1)  # the first so many problems; null: all


class NamedSource(SourceSpec):
    """A published set, from `data.root`, `$RLCTL_DATA` or the hub."""

    kind: Literal[
        "gsm8k", "math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "svamp", "cmath"
    ]
    split: Literal["auto", "train", "test"] = "auto"  # auto: train for data.train, test for eval.sets


class JsonlSource(SourceSpec):
    """Your own file, one JSON object a line."""

    kind: Literal["jsonl"]
    path: str
    name: str | None = None  # of the set in metrics; null: the file's stem
    prompt: str = "prompt"  # field with the question: text, or a list of {role, content}
    answer: str = "answer"  # field with the gold answer; a list means that each entry is accepted
    answer_transform: Literal["none", "after_hashes", "boxed"] = "none"


class HubSource(SourceSpec):
    """A data set of the Hugging Face hub."""

    kind: Literal["hub"]
    path: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    name: str | None = None
    prompt: str = "prompt"
    answer: str = "answer"
    answer_transform: Literal["none", "after_hashes", "boxed"] = "none"


class TaskSource(SourceSpec):
    """A generated task: `problems` distinct problems, train and held-out disjoint by construction."""

    problems: int = Field(4096, ge=1)


class ArithmeticSource(TaskSource):
    """`12+34=` -> `46`."""

    kind: Literal["arithmetic"]
    operations: Seq[Literal["+", "-", "*"]] = Field(("+",), min_length=1)
    digits: int = Field(2, ge=1, le=6)  # of each operand, at most


class CountdownSource(TaskSource):
    """Reach a target from given numbers with + - *; many expressions are correct."""

    kind: Literal["countdown"]
    numbers: int = Field(3, ge=2, le=5)  # how many, all different; each is used exactly once
    largest: int = Field(9, ge=2, le=99)

    @model_validator(mode="after")
    def _enough_numbers(self) -> Self:
        if self.largest < self.numbers:
            raise ValueError(
                f"largest ({self.largest}) must be at least numbers ({self.numbers}): all differ"
            )
        return self


class MazeSource(TaskSource):
    """One way through a perfect maze of `size` x `size` characters (algorithms.md 3.5; 2602.06717)."""

    kind: Literal["maze"]
    size: int = Field(9, ge=5, le=33)  # odd: walls stand between the cells

    @field_validator("size")
    @classmethod
    def _odd(cls, size: int) -> int:
        if size % 2 == 0:
            raise ValueError(f"size must be odd, such as {size + 1}")
        return size


AnySource = Annotated[
    NamedSource | JsonlSource | HubSource | ArithmeticSource | CountdownSource | MazeSource,
    Field(discriminator="kind"),
]


class DataSpec(Spec):
    """Section `data`: what is trained on and how a question becomes tokens."""

    root: str | None = None  # folder with the named sets; null: $RLCTL_DATA, else the hub
    train: AnySource | Annotated[Seq[AnySource], Field(min_length=1)]
    system_prompt: str | None = None
    template: str = "chat"  # chat (the model's own) | none | path to a .jinja file
    max_prompt_length: int = Field(512, ge=1)  # tokens
    on_overlong_prompt: Literal["drop", "error"] = "drop"
    overlap: Literal["warn", "drop", "error"] = "warn"  # training problems that are also evaluated on
    overlap_words: int = Field(13, ge=5)  # length of the n-grams; half of a problem's are enough
