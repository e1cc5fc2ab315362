"""The interface of tokenizers that the rollout and the fakes use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

MessageLike: TypeAlias = Mapping[str, Any] | BaseModel
ToolLike: TypeAlias = Mapping[str, Any] | BaseModel


@runtime_checkable
class Tokenizer(Protocol):
    """Turns text into ids and back, and a conversation into the ids that a model is given."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends an assistant turn."""
        ...

    @property
    def pad_token_id(self) -> int: ...

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        ...

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        """Encode a text and add nothing; special tokens spelled out in it count as such only if allowed."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Decode ids; bytes that are not valid UTF-8 become replacement characters."""
        ...

    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Encode a conversation as the model is given it, with the tools it may call."""
        ...
