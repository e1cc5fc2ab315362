"""Any Hugging Face tokenizer on disk, behind the same interface (extra ``hf``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfusion_tools._extras import import_extra
from sfusion_tools.errors import TokenizerNotFound
from sfusion_tools.tokenizers.chatml import as_mapping, layout
from sfusion_tools.tokenizers.protocol import MessageLike, ToolLike


class HfTokenizer:
    """A tokenizer directory loaded by ``transformers``, with its own chat template or, if it has none, ChatML.

    ``template_options`` are passed to the template, such as ``enable_thinking=False`` to Qwen3's.
    """

    def __init__(self, path: str | Path, **template_options: Any) -> None:
        self.name = str(path)
        self._options = template_options
        transformers = import_extra("transformers", extra="hf", needed_by=f"the Hugging Face tokenizer {path}")
        if not Path(path).is_dir():
            raise TokenizerNotFound(
                f"{path} is not a directory: give the path of a downloaded tokenizer "
                "(with a tokenizer_config.json); nothing is downloaded"
            )
        try:
            # No remote code and no downloads: a rollout must not depend on the network.
            self._inner: Any = transformers.AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise TokenizerNotFound(f"{path} holds no tokenizer that transformers can load: {error}") from error
        if self._inner.eos_token_id is None:
            raise TokenizerNotFound(f"the tokenizer at {path} has no eos_token, which must end an assistant turn")

    @property
    def eos_token_id(self) -> int:
        return int(self._inner.eos_token_id)

    @property
    def pad_token_id(self) -> int:
        """The padding token, or the end token if the tokenizer has none."""
        pad = self._inner.pad_token_id
        return self.eos_token_id if pad is None else int(pad)

    @property
    def vocab_size(self) -> int:
        return len(self._inner)

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        ids = self._inner.encode(text, add_special_tokens=False, split_special_tokens=not allow_special)
        return [int(number) for number in ids]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return str(self._inner.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def chat_text(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render a conversation in the tokenizer's own template, or in ChatML if it has none."""
        if self._inner.chat_template is None:
            return "".join(piece.text for piece in layout(messages, tools, add_generation_prompt))
        text: str = self._inner.apply_chat_template(
            [dict(as_mapping(message)) for message in messages],
            tools=[dict(as_mapping(tool)) for tool in tools] if tools else None,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
            **self._options,
        )
        return text

    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        # Text first, ids second: what transformers wraps the ids in differs by release.
        return self.encode(self.chat_text(messages, tools, add_generation_prompt=add_generation_prompt))
