"""The token rows of a trajectory: ids and masks that cannot get out of step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class TokenRows:
    """Ids with one loss mark each; everything else that a trainer wants follows from them."""

    ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    prompt_len: int = 0

    @classmethod
    def of_prompt(cls, ids: Sequence[int]) -> TokenRows:
        """Rows that hold a prompt and no response yet."""
        return cls(list(ids), [0] * len(ids), len(ids))

    def append(self, ids: Sequence[int], *, trained: bool) -> None:
        """Add tokens to the response: trained on (the assistant's own) or not (everybody else's)."""
        self.ids += ids
        self.loss_mask += [int(trained)] * len(ids)

    def cut(self, length: int) -> int:
        """Drop what lies behind ``length`` tokens, never of the prompt; how many were dropped."""
        keep = max(length, self.prompt_len)
        dropped = max(len(self.ids) - keep, 0)
        del self.ids[keep:]
        del self.loss_mask[keep:]
        return dropped

    @property
    def response_len(self) -> int:
        """Tokens behind the prompt."""
        return len(self.ids) - self.prompt_len


class TokenViews(ABC):
    """The rows a trainer reads, each whole and in its prompt and response part; equal in length by construction."""

    @property
    @abstractmethod
    def rows(self) -> TokenRows:
        """The rows behind the views."""

    @property
    def input_ids(self) -> list[int]:
        """Prompt and response."""
        return list(self.rows.ids)

    @property
    def attention_mask(self) -> list[int]:
        """1 for every token: padding is the trainer's."""
        return [1] * len(self.rows.ids)

    @property
    def position_ids(self) -> list[int]:
        """0, 1, 2, ..."""
        return list(range(len(self.rows.ids)))

    @property
    def loss_mask(self) -> list[int]:
        """1 for what the assistant generated; 0 for the prompt, tools, users and the template's own tokens."""
        return list(self.rows.loss_mask)

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt, generation prompt included."""
        return self.rows.ids[: self.rows.prompt_len]

    @property
    def prompt_attention_mask(self) -> list[int]:
        """The prompt's part of the attention mask."""
        return self.attention_mask[: self.rows.prompt_len]

    @property
    def prompt_position_ids(self) -> list[int]:
        """The prompt's part of the position ids."""
        return self.position_ids[: self.rows.prompt_len]

    @property
    def prompt_loss_mask(self) -> list[int]:
        """The prompt's part of the loss mask: all 0."""
        return self.rows.loss_mask[: self.rows.prompt_len]

    @property
    def response_ids(self) -> list[int]:
        """Everything behind the prompt."""
        return self.rows.ids[self.rows.prompt_len :]

    @property
    def response_attention_mask(self) -> list[int]:
        """The response's part of the attention mask."""
        return self.attention_mask[self.rows.prompt_len :]

    @property
    def response_position_ids(self) -> list[int]:
        """The response's part of the position ids; they go on where the prompt's end."""
        return self.position_ids[self.rows.prompt_len :]

    @property
    def response_loss_mask(self) -> list[int]:
        """The response's part of the loss mask."""
        return self.rows.loss_mask[self.rows.prompt_len :]
