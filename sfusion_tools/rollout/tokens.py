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
        """Drop the tokens after the first ``length``; return how many were dropped.

        The prompt is never cut.
        """
        keep = max(length, self.prompt_len)
        dropped = max(len(self.ids) - keep, 0)
        del self.ids[keep:]
        del self.loss_mask[keep:]
        return dropped

    @property
    def response_len(self) -> int:
        return len(self.ids) - self.prompt_len


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
        """1 for what the assistant generated, 0 for everything else.

        The rest is the prompt, the messages of tools and users, and the tokens of the template.
        """
        return list(self._rows.loss_mask)

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt, including the generation prompt."""
        return self._rows.ids[: self._rows.prompt_len]

    @property
    def prompt_attention_mask(self) -> list[int]:
        return self.attention_mask[: self._rows.prompt_len]

    @property
    def prompt_position_ids(self) -> list[int]:
        return self.position_ids[: self._rows.prompt_len]

    @property
    def prompt_loss_mask(self) -> list[int]:
        return self._rows.loss_mask[: self._rows.prompt_len]

    @property
    def response_ids(self) -> list[int]:
        """Everything after the prompt."""
        return self._rows.ids[self._rows.prompt_len :]

    @property
    def response_attention_mask(self) -> list[int]:
        return self.attention_mask[self._rows.prompt_len :]

    @property
    def response_position_ids(self) -> list[int]:
        """Position ids of the response; they continue those of the prompt."""
        return self.position_ids[self._rows.prompt_len :]

    @property
    def response_loss_mask(self) -> list[int]:
        return self._rows.loss_mask[self._rows.prompt_len :]
