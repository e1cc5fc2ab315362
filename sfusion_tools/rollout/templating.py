"""The tokens that a chat template puts after an assistant turn when the conversation continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.schemas import OpenAIFunctionToolSchema
from sfusion_tools.tokenizers import Tokenizer

# The new messages are rendered after this conversation, whose own tokens are then cut off.
_BASE = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]


def continuation(
    tokenizer: Tokenizer,
    messages: Sequence[dict[str, Any]],
    *,
    tools: Sequence[OpenAIFunctionToolSchema] = (),
    turn_is_closed: bool = True,
) -> list[int]:
    """Encode messages and the next generation prompt as they follow an assistant turn.

    The assistant's own turn is never rendered again, so it keeps the ids that the engine returned. If they do not end
    with the end token (``turn_is_closed`` is False), the result begins with it.
    """
    base = tokenizer.apply_chat_template(_BASE, list(tools) or None)
    whole = tokenizer.apply_chat_template([*_BASE, *messages], list(tools) or None, add_generation_prompt=True)
    if whole[: len(base)] != base:
        raise TemplateError(
            "the tokenizer's chat template rewrites earlier turns when messages are added, "
            "so the tokens of the new messages cannot be separated from the others; use another template"
        )
    end = tokenizer.eos_token_id
    # What the template writes between the end token and the next turn: in ChatML, a newline.
    gap = base[len(base) - base[::-1].index(end) :] if end in base else []
    return ([] if turn_is_closed else [end]) + gap + whole[len(base) :]
