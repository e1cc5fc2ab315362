"""What the rollout and the fakes need of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, overload, runtime_checkable

from pydantic import BaseModel

MessageLike: TypeAlias = Mapping[str, Any] | BaseModel
ToolLike: TypeAlias = Mapping[str, Any] | BaseModel


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back, and a conversation to the text or the ids that a model is given."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends an assistant turn."""
        ...

    @property
    def pad_token_id(self) -> int:
        """The token that fills a row up."""
        ...

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        ...

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        """Ids of a text; special tokens spelt in it are only meant as such when allowed. Nothing is added."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids; bytes that are no valid UTF-8 become replacement characters."""
        ...

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
        tokenize: Literal[True] = True,
    ) -> list[int]: ...

    @overload
    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
        tokenize: Literal[False],
    ) -> str: ...

    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
    ) -> list[int] | str:
        """A conversation as the model is given it, with the tools it may call."""
        ...
