"""The steps of verl 0.6.1's request.

Their callers build the conversation themselves instead of using our driver. ``processing_class``
is accepted as there and not used: a request has its tokenizer from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.rollout.states import EndCause, FinishReasonTypeEnum
from sfusion_tools.schemas import Message, OpenAIFunctionToolCall, ToolResponse


class StepsByHand:
    """Methods of ``AsyncRolloutRequest`` for use in any order, without checks of the state."""

    def get_generation_prompt_ids(self: Any, processing_class: Any = None) -> list[int]:
        """Return all ids for the engine, with the generation prompt at their end.

        It is added if it is missing.
        """
        prompt: list[int] = self.generation_prompt_ids
        if prompt and self._rows.ids[-len(prompt) :] != prompt:
            self._rows.append(prompt, trained=False)
        return list(self._rows.ids)

    def add_user_message(self: Any, processing_class: Any, content: str) -> None:
        self._drop_generation_prompt()
        self._add_messages([Message(role="user", content=content)], next_turn=False)

    def add_assistant_message(
        self: Any,
        processing_class: Any,
        content: str,
        content_ids: Any = None,
        tool_calls: Sequence[OpenAIFunctionToolCall] | None = None,
    ) -> None:
        """Add an assistant turn.

        Its ids are those that the engine generated (``content_ids``, a list or a tensor), else
        those of the template.
        """
        calls = list(tool_calls or ()) or None
        message = Message(role="assistant", content=content, tool_calls=calls)
        ids = self._turn_ids(message) if content_ids is None else _flat(content_ids)
        self.get_generation_prompt_ids()
        self.messages.append(message)
        self._rows.append(ids, trained=True)
        self.metrics.assistant_turns += 1

    def add_tool_response_messages(
        self: Any, processing_class: Any, contents: Sequence[ToolResponse]
    ) -> None:
        """Add the answers to the calls of a turn; nothing if all of them are empty."""
        if any(response.image or response.video for response in contents):
            raise ValueError(
                "this request holds text only, and a tool returned an image or a video"
            )
        if any(response.text for response in contents):
            replies = [Message(role="tool", content=response.text or "") for response in contents]
            self._drop_generation_prompt()
            self._add_messages(replies, next_turn=False)

    def update_metrics(self: Any, metrics: Any, tool_id: str) -> None:
        """Keep the metrics of a call."""
        if isinstance(metrics, Mapping):
            self.metrics.add_call(metrics)

    def finalize(
        self: Any,
        processing_class: Any,
        reward_scores: dict[str, Any],
        finish_reason_type: FinishReasonTypeEnum = FinishReasonTypeEnum.STOP,
    ) -> None:
        """End the conversation: COMPLETED and cut to its limits.

        A generation prompt that nothing followed is dropped.
        """
        by_length = finish_reason_type is FinishReasonTypeEnum.LENGTH
        if not by_length and finish_reason_type is not FinishReasonTypeEnum.STOP:
            raise ValueError(f"a request ends by stop or length, found {finish_reason_type!r}")
        self._drop_generation_prompt()
        self.truncate_output_ids()
        self.reward_scores = reward_scores
        self._end(EndCause.LENGTH if by_length else EndCause.ANSWERED, finish_reason_type)

    def truncate_output_ids(self: Any, processing_class: Any = None) -> None:
        """Cut to max_model_len and max_response_len."""
        self._cut_to_limits()

    def _drop_generation_prompt(self: Any) -> None:
        prompt = self.generation_prompt_ids
        if prompt and self._rows.ids[-len(prompt) :] == prompt:
            self._rows.cut(len(self._rows.ids) - len(prompt))

    def _turn_ids(self: Any, message: Any) -> list[int]:
        """Return the ids that the template writes for a turn, up to the token that ends it."""
        apply_template = self.processing_class.apply_chat_template
        tools = self.tool_schemas or None
        before = apply_template(self.template_messages, tools, add_generation_prompt=True)
        conversation = [*self.template_messages, message.model_dump(exclude_none=True)]
        whole = apply_template(conversation, tools, add_generation_prompt=False)
        if whole[: len(before)] != before:
            raise TemplateError(
                "the chat template writes this turn differently from its prompt; give content_ids"
            )
        ids = list(whole[len(before) :])
        end = self.processing_class.eos_token_id
        if end not in ids:
            return ids
        return ids[: ids.index(end) + 1]


def _flat(ids: Any) -> list[int]:
    """Read a list or a tensor, of one dimension or two."""
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if ids and isinstance(ids[0], list):
        ids = ids[0]
    return [int(number) for number in ids]
