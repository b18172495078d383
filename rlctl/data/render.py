"""The one place where a question becomes token ids: system prompt, chat template, BOS, length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlctl.data import DataSpec
from rlctl.data.load import Dataset
from rlctl.errors import UserError
from rlctl.types import Prompt


class Renderer:
    """Fills in `Prompt.ids`; nothing behind it tokenises a prompt again."""

    def __init__(self, tokenizer: Any, spec: DataSpec) -> None:
        self._tokenizer = tokenizer
        self._spec = spec
        self._template = _template(tokenizer, spec.template)
        self._bos: int | None = tokenizer.bos_token_id
        first = list(tokenizer("0", add_special_tokens=True)["input_ids"][:1])
        self._wants_bos = self._bos is not None and first == [self._bos]

    def render(self, prompt: Prompt) -> Prompt:
        """Return the prompt with its ids."""
        return self.render_all([prompt])[0]

    def render_all(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts with their ids; they begin with one BOS if model or template want one."""
        texts = [self._text(prompt) for prompt in prompts]
        # verbose: its own warning of long texts would stand before ours
        rows = self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [replace(prompt, ids=self._one_bos(row)) for prompt, row in zip(prompts, rows, strict=True)]

    def fit(self, datasets: Sequence[Dataset]) -> tuple[list[Dataset], dict[str, int]]:
        """Render all sets; drop or refuse prompts over `max_prompt_length` tokens, never cut them.

        Returns the sets and, for each set that lost prompts, how many.

        Raises:
            UserError: an overlong prompt with `on_overlong_prompt: error`, or a set with no other ones.
        """
        fitted, dropped = [], {}
        for dataset in datasets:
            rendered = self.render_all(dataset.prompts)
            kept = tuple(prompt for prompt in rendered if len(prompt.ids) <= self._spec.max_prompt_length)
            if len(kept) < len(rendered):
                self._refuse(rendered, none_left=not kept)
                dropped[dataset.name] = len(rendered) - len(kept)
            fitted.append(replace(dataset, prompts=kept))
        return fitted, dropped

    def _refuse(self, rendered: list[Prompt], *, none_left: bool) -> None:
        longest = max(rendered, key=lambda prompt: len(prompt.ids))
        limit = f"data.max_prompt_length is {self._spec.max_prompt_length}"
        if none_left:
            raise UserError(
                f"{longest.set}: every prompt is too long, up to {len(longest.ids)} tokens; {limit}",
                "raise data.max_prompt_length",
            )
        if self._spec.on_overlong_prompt == "error":
            raise UserError(
                f"{longest.uid}: the prompt has {len(longest.ids)} tokens; {limit}",
                "raise it, or set `data.on_overlong_prompt: drop`",
            )

    def _text(self, prompt: Prompt) -> str:
        messages = prompt.messages
        if self._spec.system_prompt is not None and messages[0][0] != "system":
            messages = (("system", self._spec.system_prompt), *messages)
        if self._spec.template == "none":
            return replace(prompt, messages=messages).text
        return self._chat(messages, prompt.uid)

    def _chat(self, messages: Sequence[tuple[str, str]], uid: str) -> str:
        from jinja2.exceptions import TemplateError

        chat = [{"role": role, "content": content} for role, content in messages]
        try:
            text: str = self._tokenizer.apply_chat_template(
                chat, chat_template=self._template, add_generation_prompt=True, tokenize=False
            )
        except TemplateError as error:
            reason = str(error).partition("\n")[0]
            hint = "some templates take no system prompt: put it into the questions, or use another template"
            raise UserError(f"{uid}: the chat template refused it: {reason}", hint) from None
        return text

    def _one_bos(self, ids: Sequence[int]) -> tuple[int, ...]:
        start = 0
        while start < len(ids) and ids[start] == self._bos:
            start += 1
        bos = (self._bos,) if self._bos is not None and (start or self._wants_bos) else ()
        return (*bos, *ids[start:])


def _template(tokenizer: Any, template: str) -> str | None:
    """Return a file's template; None: the tokenizer's own, or no template at all."""
    if template == "none":
        return None
    if template == "chat":
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "the model's tokenizer has no chat template", "set `data.template: none` or a .jinja file"
            )
        return None
    try:
        return Path(template).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"data.template: {template} cannot be read ({error.strerror})",
            "write `chat`, `none` or the path of a .jinja file",
        ) from None
