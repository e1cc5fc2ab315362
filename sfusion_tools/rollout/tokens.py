"""The token rows of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class TokenRows:
    """Ids with one loss mark each; all other rows that a trainer needs are derived from them."""

    ids: list[int]
    loss_mask: list[int]
    prompt_len: int

    def append(self, ids: Sequence[int], *, trained: bool) -> None:
        """Add tokens to the response: trained on (the assistant's own) or not (all others)."""
        self.ids += ids
        self.loss_mask += [int(trained)] * len(ids)

    def cut(self, length: int) -> int:
        """Drop the tokens after the first ``length``, never of the prompt; return how many were dropped."""
        keep = max(length, self.prompt_len)
        dropped = max(len(self.ids) - keep, 0)
        del self.ids[keep:]
        del self.loss_mask[keep:]
        return dropped

    @property
    def response_len(self) -> int:
        return len(self.ids) - self.prompt_len


class _Part:
    """One of a request's rows, as far as the prompt goes or from there on."""

    def __init__(self, row: str, *, of_prompt: bool) -> None:
        self._row = row
        self._of_prompt = of_prompt

    def __get__(self, request: TokenViews, owner: type[TokenViews]) -> list[int]:
        row, end = getattr(request, self._row), request._rows.prompt_len
        return row[:end] if self._of_prompt else row[end:]  # type: ignore[no-any-return] # one of the rows below


class TokenViews:
    """The rows a trainer reads: each as a whole, and as prompt and response."""

    _rows: TokenRows

    @property
    def input_ids(self) -> list[int]:
        return list(self._rows.ids)

    @property
    def attention_mask(self) -> list[int]:
        """1 for every token; padding is up to the trainer."""
        return [1] * len(self._rows.ids)

    @property
    def position_ids(self) -> list[int]:
        return list(range(len(self._rows.ids)))

    @property
    def loss_mask(self) -> list[int]:
        """1 for what the assistant generated; 0 for the prompt, tools, users and the tokens of the template."""
        return list(self._rows.loss_mask)

    prompt_ids = _Part("input_ids", of_prompt=True)
    """The prompt, including the generation prompt."""
    prompt_attention_mask = _Part("attention_mask", of_prompt=True)
    prompt_position_ids = _Part("position_ids", of_prompt=True)
    prompt_loss_mask = _Part("loss_mask", of_prompt=True)
    response_ids = _Part("input_ids", of_prompt=False)
    """Everything after the prompt."""
    response_attention_mask = _Part("attention_mask", of_prompt=False)
    response_position_ids = _Part("position_ids", of_prompt=False)
    """Position ids of the response; they continue those of the prompt."""
    response_loss_mask = _Part("loss_mask", of_prompt=False)
