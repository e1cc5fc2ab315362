"""The interface of the generation engine, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sfusion_tools.errors import EngineAnswerError
from sfusion_tools.rollout.states import FinishReasonTypeEnum
from sfusion_tools.tokenizers import Tokenizer


class Engine(Protocol):
    """An engine with the interface of sglang's."""

    async def async_generate(self, *, input_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """Generate one turn; return ``text``, ``output_ids`` and ``meta_info`` with a ``finish_reason``."""
        ...


@dataclass(frozen=True)
class Generated:
    """One turn, with the ids exactly as the engine returned them."""

    ids: list[int]
    text: str
    finish_reason: FinishReasonTypeEnum
    retokenised: bool = False
    """True when the engine returned no ids and the text had to be encoded."""


def read_answer(answer: Any, tokenizer: Tokenizer) -> Generated:
    if not isinstance(answer, Mapping):
        raise EngineAnswerError(f"the engine answered with a {type(answer).__name__}; an object was expected")
    meta = answer.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, Mapping) else None
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    if not isinstance(kind, str):
        raise EngineAnswerError("the engine's answer has no meta_info.finish_reason.type")
    try:
        finish = FinishReasonTypeEnum.from_str(kind)
    except ValueError as error:
        raise EngineAnswerError(str(error)) from error
    ids = answer.get("output_ids")
    if ids is not None:
        kept = [int(number) for number in ids]
        # The text comes from the ids: they are what will be trained on, special tokens included.
        shown = kept[:-1] if kept and kept[-1] == tokenizer.eos_token_id else kept
        return Generated(kept, tokenizer.decode(shown), finish)
    text = answer.get("text")
    if not isinstance(text, str):
        raise EngineAnswerError("the engine's answer has neither output_ids nor text")
    closing = [] if finish is FinishReasonTypeEnum.LENGTH else [tokenizer.eos_token_id]
    return Generated([*tokenizer.encode(text, allow_special=False), *closing], text, finish, retokenised=True)
