"""The built-in tokenizer: one id per UTF-8 byte and three special tokens, so nothing needs to be downloaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from sfusion_tools.errors import UnknownToken
from sfusion_tools.tokenizers.chatml import END_OF_TEXT, IM_END, IM_START, layout
from sfusion_tools.tokenizers.protocol import MessageLike, ToolLike

_BYTES = 256
SPECIAL_TOKENS = {END_OF_TEXT: _BYTES, IM_START: _BYTES + 1, IM_END: _BYTES + 2}
_BY_ID = {number: text for text, number in SPECIAL_TOKENS.items()}
_SPLIT = re.compile("(" + "|".join(re.escape(text) for text in SPECIAL_TOKENS) + ")")


def _bytes_of(text: str) -> list[int]:
    # JSON lets lone surrogates through and UTF-8 cannot encode them: they become "?" instead of ending a rollout.
    return list(text.encode("utf-8", errors="replace"))


class ByteTokenizer:
    """Byte-level tokenizer with ChatML; special tokens spelled out in a message stay plain text."""

    eos_token_id = SPECIAL_TOKENS[IM_END]
    pad_token_id = SPECIAL_TOKENS[END_OF_TEXT]
    vocab_size = _BYTES + len(SPECIAL_TOKENS)

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        if not allow_special:
            return _bytes_of(text)
        ids: list[int] = []
        for part in _SPLIT.split(text):
            special = SPECIAL_TOKENS.get(part)
            if special is None:
                ids += _bytes_of(part)
            else:
                ids.append(special)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        ids = list(ids)  # of an array, bytes() would take the memory
        with suppress(ValueError):  # a special token is no byte
            return bytes(ids).decode("utf-8", errors="replace")
        texts: list[str] = []
        start = 0
        specials = (place for place, number in enumerate(ids) if not 0 <= number < _BYTES)
        for place in specials:
            if ids[place] not in _BY_ID:
                raise UnknownToken(f"token {ids[place]} is outside the vocabulary of {self.vocab_size} ids")
            texts.append(bytes(ids[start:place]).decode("utf-8", errors="replace"))
            if not skip_special_tokens:
                texts.append(_BY_ID[ids[place]])
            start = place + 1
        texts.append(bytes(ids[start:]).decode("utf-8", errors="replace"))
        return "".join(texts)

    def chat_text(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render a conversation in ChatML."""
        return "".join(piece.text for piece in layout(messages, tools, add_generation_prompt))

    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        pieces = layout(messages, tools, add_generation_prompt)
        return [number for piece in pieces for number in self.encode(piece.text, allow_special=piece.is_mark)]
