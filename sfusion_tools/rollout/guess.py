"""Which format a chat template writes its calls in.

The signs in a template are a guess; what it writes is the proof. Functionary's templates have the
signs of Llama 3 and write calls in a way of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.formats import Format, format_for
from sfusion_tools.rollout.outline import BASES, call_id, common_length
from sfusion_tools.tokenizers import Tokenizer

_NAME = "lookup_word"
_ARGUMENTS = {"word": "zebra"}
_TOOLS: Sequence[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": _NAME,
            "description": "Look up a word.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string", "description": "The word."}},
                "required": ["word"],
            },
        },
    }
]


def format_of(tokenizer: Tokenizer | None) -> Format | None:
    """Return the format of a tokenizer's chat template; None if it cannot be told.

    The signs of several formats may be in a template. Its format is the likeliest of them that
    reads back a call that the template writes. A template that writes no calls at all is judged by
    its signs, if only models with one format have them.
    """
    template = getattr(tokenizer, "chat_template", None)
    if tokenizer is None or format_for(template=template) is None:
        return None
    written = [text for text in _written_calls(tokenizer) if _NAME in text]
    if not written:
        return format_for(template=template, accept=lambda form: not form.signs_are_common)
    return format_for(
        template=template, accept=lambda form: any(_reads(form, text) for text in written)
    )


def _written_calls(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the turn of an assistant that calls a tool, in every way that the template accepts.

    It begins after the generation prompt, or before it: a prompt may end with a part of a marker.
    """
    encodings = (_ARGUMENTS, json.dumps(_ARGUMENTS))
    for base, arguments, content, prompt in product(BASES, encodings, ("", "x"), (True, False)):
        function = {"name": _NAME, "arguments": arguments}
        call = {"id": call_id(1, 0), "type": "function", "function": function}
        turn = {"role": "assistant", "content": content, "tool_calls": [call]}
        try:
            before = tokenizer.apply_chat_template(base, _TOOLS, add_generation_prompt=prompt)
            whole = tokenizer.apply_chat_template(
                [*base, turn], _TOOLS, add_generation_prompt=False
            )
        except TemplateError:
            continue
        yield tokenizer.decode(whole[common_length(before, whole) :])


def _reads(form: Format, text: str) -> bool:
    """Return whether a format reads the call in a turn."""
    calls = form.parse(text, _TOOLS).calls
    return [(call.name, call.arguments) for call in calls] == [(_NAME, _ARGUMENTS)]
