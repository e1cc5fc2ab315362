"""Tokenizers: a built-in byte-level one, and any Hugging Face tokenizer by path.

The built-in one lays conversations out in ChatML, with the tools section that Qwen-like models are
trained on.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

from sfusion_tools.errors import (
    TemplateError,
    TokenizerError,
    TokenizerNotFound,
    UnknownToken,
    import_extra,
)

__all__ = [
    "ByteTokenizer",
    "HfTokenizer",
    "MessageLike",
    "Tokenizer",
    "TokenizerError",
    "TokenizerNotFound",
    "ToolLike",
    "UnknownToken",
    "load_tokenizer",
    "tools_section",
]

MessageLike: TypeAlias = Mapping[str, Any] | BaseModel
ToolLike: TypeAlias = Mapping[str, Any] | BaseModel

IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"

_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)

_BYTES = 256
SPECIAL_TOKENS = {END_OF_TEXT: _BYTES, IM_START: _BYTES + 1, IM_END: _BYTES + 2}
_BY_ID = {number: text for text, number in SPECIAL_TOKENS.items()}
_BREAK = "xBREAKx7Qz"
"""Where a text is cut before it is encoded; letters and digits, which no template escapes."""
_SPLIT = re.compile("(" + "|".join(re.escape(text) for text in SPECIAL_TOKENS) + ")")


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
        """Encode a text and add nothing.

        Special tokens spelled out in it count as such only if allowed.
        """
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
        """Encode a conversation as the model is given it, with the tools it may call.

        Without a template this is ChatML. Raises TemplateError for a conversation that the chat
        template refuses.
        """
        return _chatml(self, messages, tools, add_generation_prompt)


_SPECIALS = re.compile("([^\x00-\xff])")
_IN_MEMORY = f"utf-32-{sys.byteorder[0]}e"


def _bytes_of(text: str) -> list[int]:
    # JSON lets lone surrogates through and UTF-8 cannot encode them: they become "?" instead of
    # ending a rollout.
    return list(text.encode("utf-8", errors="replace"))


class ByteTokenizer(Tokenizer):
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
        try:
            # As a text with one character per token, which is split faster than a list of numbers.
            parts = _SPECIALS.split(array("I", ids).tobytes().decode(_IN_MEMORY))
            parts[1::2] = [_BY_ID[ord(part)] for part in parts[1::2]]
        except (OverflowError, UnicodeDecodeError, KeyError):
            unknown = next(number for number in ids if not 0 <= number < self.vocab_size)
            raise UnknownToken(
                f"token {unknown} is outside the vocabulary of {self.vocab_size} ids"
            ) from None
        parts[::2] = [
            part.encode("latin-1").decode("utf-8", errors="replace") for part in parts[::2]
        ]
        return "".join(parts[::2] if skip_special_tokens else parts)


class HfTokenizer:
    """A tokenizer directory loaded by ``transformers``.

    It has its own chat template or, without one, ChatML. ``template_options`` are passed to the
    template, such as ``enable_thinking=False`` to Qwen3's.
    """

    def __init__(self, path: str | Path, **template_options: Any) -> None:
        self.name = str(path)
        self._options = template_options
        transformers = import_extra(
            "transformers", extra="hf", needed_by=f"the Hugging Face tokenizer {path}"
        )
        if not Path(path).is_dir():
            raise TokenizerNotFound(
                f"{path} is not a directory: give the path of a downloaded tokenizer "
                "(with a tokenizer_config.json); nothing is downloaded"
            )
        try:
            # No remote code and no downloads: a rollout must not depend on the network.
            self._inner: Any = transformers.AutoTokenizer.from_pretrained(
                str(path), local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise TokenizerNotFound(
                f"{path} holds no tokenizer that transformers can load: {error}"
            ) from error
        if self._inner.eos_token_id is None:
            raise TokenizerNotFound(
                f"the tokenizer at {path} has no eos_token, which must end an assistant turn"
            )
        self.eos_token_id = int(self._inner.eos_token_id)
        pad = self._inner.pad_token_id
        self.pad_token_id = self.eos_token_id if pad is None else int(pad)
        """The padding token, or the end token if the tokenizer has none."""
        self.vocab_size = len(self._inner)
        self._marks = _marks_pattern(self._inner.added_tokens_decoder.values())

    @property
    def chat_template(self) -> str | None:
        """The text of the template; that for tools if there are several."""
        template = self._inner.chat_template
        if isinstance(template, dict):
            return str(template.get("tool_use") or template.get("default"))
        return template if template is None else str(template)

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        ids = self._inner.encode(
            text, add_special_tokens=False, split_special_tokens=not allow_special
        )
        return [int(number) for number in ids]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        # Either option may be on in a tokenizer's config, and changes the code that a model wrote.
        unchanged = {"clean_up_tokenization_spaces": False, "spaces_between_special_tokens": False}
        return str(
            self._inner.decode(list(ids), skip_special_tokens=skip_special_tokens, **unchanged)
        )

    def apply_chat_template(
        self,
        messages: Sequence[MessageLike],
        tools: Sequence[ToolLike] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        if self._inner.chat_template is None:
            return _chatml(self, messages, tools, add_generation_prompt)
        # Text first, ids second: what transformers wraps the ids in differs by release.
        shown = [self._harmless(_as_mapping(message)) for message in messages]
        offered = [_shown_tool(tool) for tool in tools] if tools else None
        try:
            text: str = self._inner.apply_chat_template(
                shown,
                tools=offered,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **self._options,
            )
        except Exception as error:  # a template is a program and can raise anything
            raise TemplateError(
                f"the chat template of {self.name} raised {type(error).__name__}: {error}"
            ) from error
        return [number for part in text.split(_BREAK) for number in self.encode(part)]

    def _harmless(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Break the special tokens that are spelled out in a message.

        So they are encoded as text. An assistant's are its own: templates look for ``</think>`` and
        the like in them.
        """
        content = message.get("content")
        if message.get("role") == "assistant" or not content:
            return dict(message)
        if isinstance(content, str):
            content = self._broken(content)
        elif isinstance(content, Sequence):
            content = [
                self._broken(part) if isinstance(part, str) else self._broken_part(part)
                for part in content
            ]
        return {**message, "content": content}

    def _broken_part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self._broken(text) if key == "text" else text for key, text in part.items()}

    def _broken(self, text: str) -> str:
        return self._marks.sub(lambda mark: mark[0][0] + _BREAK + mark[0][1:], text)


def _marks_pattern(added_tokens: Iterable[Any]) -> re.Pattern[str]:
    """Return a pattern of the added tokens that a message must not spell out."""
    marks = set()
    for token in added_tokens:
        looks_special = "|" in token.content or "｜" in token.content
        if len(token.content) > 1 and (token.special or looks_special):
            marks.add(token.content)
    longest_first = sorted(marks, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def load_tokenizer(name: str | Path | None = None, **template_options: Any) -> Tokenizer:
    """Return the built-in tokenizer for None or ``bytes``, else the Hugging Face one at a path.

    The options are for the chat template of the latter; the built-in one has none.
    """
    if name is not None and name != "bytes":
        return HfTokenizer(name, **template_options)
    if template_options:
        raise TokenizerError(
            f"the built-in tokenizer takes no template options, found {', '.join(template_options)}"
        )
    return ByteTokenizer()


def _as_mapping(value: MessageLike) -> Mapping[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else value


def _set_fields(tool: ToolLike) -> dict[str, Any]:
    """Return a tool without the fields that were not set."""
    return tool.model_dump(exclude_unset=True) if isinstance(tool, BaseModel) else dict(tool)


def _shown_tool(tool: ToolLike) -> dict[str, Any]:
    """Return a tool as templates expect it."""
    shown = _set_fields(tool)
    if not isinstance(tool, BaseModel):
        return shown
    # Templates read the parameters without asking whether there are any.
    parameters = shown["function"].setdefault("parameters", {"type": "object", "properties": {}})
    for schema in parameters.get("properties", {}).values():
        for key in ("description", "enum"):
            if key in schema and schema[key] is None:
                del schema[key]
    return shown


def _content_text(content: Any) -> str:
    """Return the text of a message's content: a string, None, or OpenAI's list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(
            part if isinstance(part, str) else str(part.get("text", "")) for part in content
        )
    return str(content)


def tools_section(tools: Iterable[ToolLike]) -> str:
    """Render the part of the system message that lists the functions."""
    lines = "".join("\n" + json.dumps(_set_fields(tool), ensure_ascii=False) for tool in tools)
    return _TOOLS_HEAD + lines + _TOOLS_TAIL


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function") or call
    arguments = function.get("arguments")
    # OpenAI's messages carry the arguments as JSON text, our own as an object.
    if isinstance(arguments, str):
        written = arguments
    else:
        written = json.dumps(arguments or {}, ensure_ascii=False)
    name = json.dumps(function.get("name", ""), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {written}}}\n</tool_call>'


def _body(message: Mapping[str, Any]) -> str:
    parts = [_content_text(message.get("content"))]
    parts += [_call_text(_as_mapping(call)) for call in message.get("tool_calls") or ()]
    return "\n".join(part for part in parts if part)


def _chatml(
    tokenizer: Tokenizer,
    messages: Sequence[MessageLike],
    tools: Sequence[ToolLike] | None,
    add_generation_prompt: bool,
) -> list[int]:
    """Encode a conversation in ChatML; a message may contain the characters of its marks."""
    plain = partial(tokenizer.encode, allow_special=False)
    start = tokenizer.encode(IM_START)
    end = tokenizer.encode(IM_END) + plain("\n")
    ids: list[int] = []
    for turn in _turns(messages, tools):
        ids += [*start, *plain(turn), *end]
    if add_generation_prompt:
        ids += [*start, *plain("assistant\n")]
    return ids


def _turns(messages: Sequence[MessageLike], tools: Sequence[ToolLike] | None) -> Iterator[str]:
    rest = [_as_mapping(message) for message in messages]
    if tools:
        lead = ""
        if rest and rest[0].get("role") == "system":
            lead = _content_text(rest.pop(0).get("content"))
        section = tools_section(tools)
        yield f"system\n{lead}\n\n{section}" if lead else f"system\n{section}"
    for message in rest:
        yield f"{message.get('role', 'user')!s}\n{_body(message)}"
