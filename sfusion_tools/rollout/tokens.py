"""The token rows of a trajectory: ids and masks that always have the same length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class TokenRows:
    """Ids with one loss mark each; all other rows that a trainer needs are derived from them."""

    ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    prompt_len: int = 0

    @classmethod
    def of_prompt(cls, ids: Sequence[int]) -> TokenRows:
        """Start with a prompt and an empty response."""
        return cls(list(ids), [0] * len(ids), len(ids))

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


class TokenViews(ABC):
    """The rows a trainer reads: each as a whole, and as prompt and response."""

    @property
    @abstractmethod
    def rows(self) -> TokenRows: ...

    @property
    def input_ids(self) -> list[int]:
        return list(self.rows.ids)

    @property
    def attention_mask(self) -> list[int]:
        """1 for every token; padding is up to the trainer."""
        return [1] * len(self.rows.ids)

    @property
    def position_ids(self) -> list[int]:
        return list(range(len(self.rows.ids)))

    @property
    def loss_mask(self) -> list[int]:
        """1 for what the assistant generated; 0 for the prompt, tools, users and the tokens of the template."""
        return list(self.rows.loss_mask)

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt, including the generation prompt."""
        return self.rows.ids[: self.rows.prompt_len]

    @property
    def prompt_attention_mask(self) -> list[int]:
        return self.attention_mask[: self.rows.prompt_len]

    @property
    def prompt_position_ids(self) -> list[int]:
        return self.position_ids[: self.rows.prompt_len]

    @property
    def prompt_loss_mask(self) -> list[int]:
        return self.rows.loss_mask[: self.rows.prompt_len]

    @property
    def response_ids(self) -> list[int]:
        """Everything after the prompt."""
        return self.rows.ids[self.rows.prompt_len :]

    @property
    def response_attention_mask(self) -> list[int]:
        return self.attention_mask[self.rows.prompt_len :]

    @property
    def response_position_ids(self) -> list[int]:
        """Position ids of the response; they continue those of the prompt."""
        return self.position_ids[self.rows.prompt_len :]

    @property
    def response_loss_mask(self) -> list[int]:
        return self.rows.loss_mask[self.rows.prompt_len :]
