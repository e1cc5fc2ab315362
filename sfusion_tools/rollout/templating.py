"""The tokens that a chat template puts behind an assistant's turn when the conversation goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from sfusion_tools.tokenizers import Tokenizer

# A conversation to render the new messages behind; what it contributes itself is cut off again.
_BASE = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]


def continuation(
    tokenizer: Tokenizer,
    messages: Sequence[dict[str, Any]],
    *,
    tools: Sequence[OpenAIFunctionToolSchema] = (),
    turn_is_closed: bool = True,
) -> list[int]:
    """Ids of the messages and of the next generation prompt, as they follow an assistant's turn.

    The assistant's own ids are never rendered again, so a turn keeps the ids that the engine gave it. Where they do
    not end with the end token (``turn_is_closed`` is False) it is put in front.
    """
    base = tokenizer.apply_chat_template(_BASE, list(tools) or None)
    whole = tokenizer.apply_chat_template([*_BASE, *messages], list(tools) or None, add_generation_prompt=True)
    if whole[: len(base)] != base:
        raise TemplateError(
            "the tokenizer's chat template rewrites earlier turns when messages are added, "
            "so the tokens of a new message cannot be told apart"
        )
    end = tokenizer.eos_token_id
    # What the template writes between the end token and the next turn, a newline in ChatML.
    gap = base[len(base) - base[::-1].index(end) :] if end in base else []
    return ([] if turn_is_closed else [end]) + gap + whole[len(base) :]
