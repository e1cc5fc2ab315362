"""One trajectory as a state machine: the rules, without any I/O.

    PENDING -> RUNNING -> TOOL_CALLING -> RUNNING ... -> COMPLETED
                  |  ^
                  v  |                        any of them -> FAILED
               INTERACTING

The driver generates, executes calls and asks the user side, and passes the results to the next step
here. Token rows only grow: by what the engine generated (trained on) and by what messages add
(never trained on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from sfusion_tools.errors import IllegalTransition
from sfusion_tools.outcome import OUTCOMES
from sfusion_tools.rollout.by_hand import StepsByHand
from sfusion_tools.rollout.continuation import continuation
from sfusion_tools.rollout.limits import RolloutLimits, truncate
from sfusion_tools.rollout.states import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout.states import EndCause, FinishReasonTypeEnum
from sfusion_tools.rollout.tokens import TokenRows, TokenViews
from sfusion_tools.rollout.turns import FoundCall, ParsedTurn, PlannedCall, ToolResult, plan_calls
from sfusion_tools.schemas import (
    Message,
    OpenAIFunctionCallSchema,
    OpenAIFunctionToolCall,
    OpenAIFunctionToolSchema,
)
from sfusion_tools.tokenizers import ByteTokenizer, Tokenizer

_LIMITS = tuple(RolloutLimits.__dataclass_fields__)
_BYTES = ByteTokenizer()
"""One for all requests: what is learnt of a chat template is kept with its tokenizer."""
_ENDING = 64
"""Ids of a turn that show which tags it closed. Chosen: more than a template closes."""
_OF_VERL = (
    "tokenization_sanity_check_mode",
    "use_inference_chat_template",
    "multi_modal_keys",
    "multi_modal_data",
    "multi_modal_inputs",
)
"""What verl 0.6.1 passes too.

There is nothing to check, because ids are kept as generated, and messages are text.
"""


class RolloutMetrics(BaseModel):
    """What happened to a trajectory's calls.

    A trainer reads here what was not the model's doing.
    """

    assistant_turns: int = 0
    user_turns: int = 0
    calls: int = 0
    """Calls found in the model's text, good or bad."""
    executed: int = 0
    refused: Counter[str] = Field(default_factory=Counter)
    """Calls answered with a message instead of being executed, by reason."""
    noticed: Counter[str] = Field(default_factory=Counter)
    """Other oddities of the model's text, by kind; no call was refused for them."""
    not_run: int = 0
    """Calls of the turn in which the trajectory ended: there was no turn left to answer them."""
    outcomes: Counter[str] = Field(default_factory=Counter)
    """Executed calls, by the outcome in the tool's metrics."""
    call_metrics: list[dict[str, Any]] = Field(default_factory=list)
    """What the tools returned as metrics, for each executed call that returned any."""
    tool_errors: int = 0
    """Executed calls whose tool raised."""
    last_call_lost: bool = False
    """The last executed call was lost: leave this trajectory out of the loss and of the baseline
    of its group."""
    shortened_responses: int = 0
    dropped_tokens: int = 0
    """Tokens that did not fit: of tool or user messages, or of an engine that generated too
    many."""
    retokenised_turns: int = 0
    """Turns for which the engine returned text but no ids."""
    release_errors: int = 0
    generation_seconds: float = 0.0
    tool_seconds: float = 0.0

    def add_call(self, metrics: Mapping[str, Any]) -> None:
        """Keep the metrics of an executed call and count its outcome, if there is one."""
        if metrics:
            self.call_metrics.append(dict(metrics))
        if metrics.get("outcome") is not None:
            self.outcomes[str(metrics["outcome"])] += 1

    @property
    def infrastructure_failures(self) -> int:
        """Calls whose result says nothing about the model."""
        return sum(n for name, n in self.outcomes.items() if _is_lost(name)) + self.tool_errors


def _is_lost(outcome: Any) -> bool:
    known = OUTCOMES.get(outcome) if isinstance(outcome, str) else None
    return known is not None and known.is_infrastructure


class AsyncRolloutRequest(StepsByHand, TokenViews, BaseModel):
    """A conversation that grows from a prompt into training data.

    Give the limits as ``limits``, or one by one under the names that verl uses.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    request_id: str = Field(default_factory=lambda: uuid4().hex)
    batch_data_id: int = 0
    rollout_offset: int = 0
    """Its place among the siblings of its group."""
    group_id: str | None = None
    """The prompt that it shares with its siblings; verl's ``uid``."""
    sampling_seed: int | None = None
    """Passed to the engine with each turn, so that siblings differ and a rollout can be
    repeated."""
    state: State = State.PENDING
    messages: list[Message] = Field(min_length=1)
    tool_schemas: list[OpenAIFunctionToolSchema] = Field(default_factory=list)
    tools_kwargs: dict[str, dict[str, Any]] = Field(default_factory=dict)
    interaction_kwargs: dict[str, Any] | None = None
    """Not None if the rollout has a user side."""
    limits: RolloutLimits = RolloutLimits()
    processing_class: Tokenizer = Field(default_factory=lambda: _BYTES, exclude=True, repr=False)
    finish_reason: FinishReasonTypeEnum | None = None
    ended_by: EndCause | None = None
    failure: str | None = None
    """Why the request failed, or why a COMPLETED one has no ``reward_scores``."""
    tool_rewards: dict[str, list[float | None]] = Field(default_factory=dict)
    """The rewards that ``execute`` returned, per tool and call."""
    reward_scores: dict[str, Any] = Field(default_factory=dict)
    """The rewards that ``calc_reward`` returned at the end, per tool."""
    interaction_scores: list[float] = Field(default_factory=list)
    metrics: RolloutMetrics = Field(default_factory=RolloutMetrics)

    _rows: TokenRows = PrivateAttr()
    _given: int = PrivateAttr()
    """How many of the messages are the prompt."""
    _planned: list[PlannedCall] = PrivateAttr(default_factory=list)
    _consecutive_invalid: int = PrivateAttr(default=0)

    @model_validator(mode="before")
    @classmethod
    def _gather_limits(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        single = {name: values[name] for name in _LIMITS if name in values}
        rest = {name: value for name, value in values.items() if name not in single}
        if rest.get("tool_schemas") is None:
            rest.pop("tool_schemas", None)
        for name in _OF_VERL:
            if not rest.get(name) or name == "tokenization_sanity_check_mode":
                rest.pop(name, None)
        if single:
            if "limits" in rest:
                raise ValueError(f"limits were given twice: as `limits` and as {', '.join(single)}")
            rest["limits"] = RolloutLimits(**single)
        return rest

    def model_post_init(self, _context: Any) -> None:
        """Tokenize the prompt."""
        self.tool_rewards = {name: [] for name in self.tool_names}
        self._given = len(self.messages)
        prompt = self.processing_class.apply_chat_template(
            self.template_messages, self.tool_schemas or None, add_generation_prompt=True
        )
        self._rows = TokenRows(list(prompt), [0] * len(prompt), len(prompt))

    @property
    def template_messages(self) -> list[dict[str, Any]]:
        """The messages as chat templates expect them."""
        return _shown(self.messages)

    @property
    def tool_names(self) -> list[str]:
        return [schema.function.name for schema in self.tool_schemas]

    @property
    def generation_prompt_ids(self) -> list[int]:
        """What the template puts before an assistant turn; the prompt ends with it."""
        given = self.template_messages[: self._given]
        bare = self.processing_class.apply_chat_template(given, self.tool_schemas or None)
        prompt = self.prompt_ids
        if prompt[: len(bare)] != bare:
            return []
        return prompt[len(bare) :]

    @property
    def tokens_left(self) -> int | None:
        """How many tokens the next turn may have; None for no limit."""
        rows = self._rows
        return self.limits.tokens_left(rows.prompt_len, rows.response_len)

    @property
    def calls_to_execute(self) -> list[PlannedCall]:
        """The calls of this turn that were not refused, in order."""
        return [call for call in self._planned if call.refusal is None]

    def start(self) -> None:
        """PENDING -> RUNNING, or FAILED if the prompt is too long."""
        self._expect(State.PENDING)
        length = self._rows.prompt_len
        max_prompt_len = self.limits.max_prompt_len
        max_model_len = self.limits.max_model_len
        found = f"the prompt has {length} tokens"
        if max_prompt_len is not None and length > max_prompt_len:
            self.fail(EndCause.PROMPT_TOO_LONG, f"{found}, max_prompt_len is {max_prompt_len}")
        elif max_model_len is not None and length >= max_model_len:
            why = f"{found}, which leaves none for a reply: max_model_len is {max_model_len}"
            self.fail(EndCause.PROMPT_TOO_LONG, why)
        else:
            self._continue()

    def add_assistant_turn(
        self, ids: Sequence[int], turn: ParsedTurn, finish_reason: FinishReasonTypeEnum
    ) -> None:
        """Append a generated turn unchanged and decide what comes next."""
        self._expect(State.RUNNING)
        self._rows.append(ids, trained=True)
        if self._cut_to_limits():
            finish_reason = FinishReasonTypeEnum.LENGTH
        self.metrics.assistant_turns += 1
        self.metrics.calls += len(turn.calls)
        self.metrics.noticed.update(turn.notices)
        planned = plan_calls(
            turn.calls,
            self.tool_names,
            self.limits.max_parallel_calls,
            f"{self.request_id} {self.metrics.assistant_turns}",
        )
        self.messages.append(_assistant_message(turn, planned))
        self.finish_reason = FinishReasonTypeEnum.TOOL_CALL if planned else finish_reason
        self._go_on_after_turn(planned, finish_reason)
        if self.state.is_final:
            self.metrics.not_run += len(planned)

    def _go_on_after_turn(
        self, planned: list[PlannedCall], finish_reason: FinishReasonTypeEnum
    ) -> None:
        """RUNNING -> TOOL_CALLING, INTERACTING or a final state."""
        is_last_turn = _is_used_up(self.limits.max_assistant_turns, self.metrics.assistant_turns)
        has_user_side = self.interaction_kwargs is not None
        if finish_reason is FinishReasonTypeEnum.ABORT:
            self.fail(EndCause.ENGINE, "the engine aborted the generation")
        elif finish_reason is FinishReasonTypeEnum.LENGTH:
            self._end(EndCause.LENGTH, finish_reason)
        elif is_last_turn and (planned or has_user_side):
            self._end(EndCause.ASSISTANT_TURNS)
        elif planned:
            self._planned = planned
            self.state = State.TOOL_CALLING
        elif not has_user_side:
            self._end(EndCause.ANSWERED)
        elif _is_used_up(self.limits.max_user_turns, self.metrics.user_turns):
            self._end(EndCause.USER_TURNS)
        else:
            self.state = State.INTERACTING

    def add_tool_results(self, results: Sequence[ToolResult]) -> None:
        """Answer every call of the turn.

        The executed ones are answered with these results, in order, the others with the reason.
        """
        self._expect(State.TOOL_CALLING)
        if len(results) != len(self.calls_to_execute):
            raise IllegalTransition(
                f"expected {len(self.calls_to_execute)} results, got {len(results)}"
            )
        waiting = iter(results)
        answers: list[Message] = []
        for call in self._planned:
            if call.refusal is None:
                result = next(waiting)
                self._count_result(call, result)
                answers.append(self._tool_message(call, result.response.text or ""))
                continue
            self.metrics.refused[call.refusal.value] += 1
            if call.refusal.is_invalid:
                self._consecutive_invalid += 1
            if call.is_answered:
                answers.append(self._tool_message(call, call.message))
        self._planned = []
        over = _is_used_up(self.limits.max_consecutive_invalid_calls, self._consecutive_invalid)
        self._add_messages(answers, next_turn=not over)
        if over:
            self._cut_to_limits()
            self._end(EndCause.INVALID_CALLS)
        else:
            self._continue()

    def _count_result(self, call: PlannedCall, result: ToolResult) -> None:
        if result.is_invalid:
            self._consecutive_invalid += 1
        else:
            self._consecutive_invalid = 0
        self.metrics.executed += 1
        self.metrics.tool_errors += int(result.raised)
        self.metrics.add_call(result.metrics)
        self.metrics.last_call_lost = result.raised or _is_lost(result.metrics.get("outcome"))
        self.tool_rewards[call.name].append(result.reward)

    def add_user_turn(self, content: str, score: float | None = None) -> None:
        """INTERACTING -> RUNNING: the user side has answered."""
        self._expect(State.INTERACTING)
        self.metrics.user_turns += 1
        if score is not None:
            self.interaction_scores.append(score)
        self._add_messages([Message(role="user", content=content)])
        self._continue()

    def end_interaction(self, score: float | None = None) -> None:
        """INTERACTING -> COMPLETED: the user side ended the conversation."""
        self._expect(State.INTERACTING)
        if score is not None:
            self.interaction_scores.append(score)
        self._end(EndCause.INTERACTION)

    def fail(self, cause: EndCause, why: str) -> None:
        """Any state that is not final -> FAILED."""
        if self.state.is_final:
            raise IllegalTransition(f"request {self.request_id} is already {self.state.value}")
        self._set_failed(cause, why)

    def stop(self, cause: EndCause, why: str) -> None:
        """Any state -> FAILED, COMPLETED too.

        A COMPLETED request that is stopped has no rewards yet, so it is not a sample.
        """
        if self.state is not State.FAILED:
            self._set_failed(cause, why)

    def _set_failed(self, cause: EndCause, why: str) -> None:
        self.state = State.FAILED
        self.ended_by = cause
        self.failure = why

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise IllegalTransition(
                f"request {self.request_id} is {self.state.value}; this step is allowed "
                f"only when it is {state.value}"
            )

    def _end(self, cause: EndCause, finish_reason: FinishReasonTypeEnum | None = None) -> None:
        self.state = State.COMPLETED
        self.ended_by = cause
        self.finish_reason = finish_reason or self.finish_reason

    def _continue(self) -> None:
        """Generate next, or end by length if no token is left; that is not an error."""
        left = self.tokens_left
        if left is not None and left <= 0:
            self._cut_to_limits()
            self._end(EndCause.LENGTH, FinishReasonTypeEnum.LENGTH)
        else:
            self.state = State.RUNNING

    def _cut_to_limits(self) -> bool:
        left = self.tokens_left
        if left is None or left >= 0:
            return False
        dropped = self._rows.cut(len(self._rows.ids) + left)
        self.metrics.dropped_tokens += dropped
        return dropped > 0

    def _tool_message(self, call: PlannedCall, text: str) -> Message:
        shown = truncate(
            text, self.limits.max_tool_response_length, self.limits.tool_response_truncate_side
        )
        self.metrics.shortened_responses += int(shown != text)
        return Message(role="tool", content=shown, tool_call_id=call.id, name=call.name or None)

    def _add_messages(self, messages: list[Message], *, next_turn: bool = True) -> None:
        """Append tool or user messages.

        With ``next_turn`` the generation prompt of the next assistant turn follows them.
        """
        history = self._before_last_turn()
        self.messages += messages
        ids = self._rows.ids
        more = continuation(
            self.processing_class,
            _shown(messages),
            tools=self.tool_schemas,
            history=_shown(history),
            last=ids[-1] if ids else None,
            turn=ids[-_ENDING:],
            add_generation_prompt=next_turn,
        )
        self._rows.append(more, trained=False)

    def _before_last_turn(self) -> list[Message]:
        """Return the messages before the last assistant turn; all if there is none."""
        for place in range(len(self.messages) - 1, -1, -1):
            if self.messages[place].role == "assistant":
                return self.messages[:place]
        return list(self.messages)


def _shown(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.model_dump(exclude_none=True) for message in messages]


def _is_used_up(limit: int | None, used: int) -> bool:
    return limit is not None and used >= limit


def _assistant_message(turn: ParsedTurn, planned: Sequence[PlannedCall]) -> Message:
    """Return the turn as a message, with the calls that were understood and are answered."""
    calls = []
    for call, plan in zip(turn.calls, planned, strict=True):
        if not isinstance(call, FoundCall) or not isinstance(call.arguments, dict):
            continue
        if plan.is_answered:
            function = OpenAIFunctionCallSchema(name=call.name, arguments=call.arguments)
            calls.append(OpenAIFunctionToolCall(id=plan.id, function=function))
    return Message(role="assistant", content=turn.content, tool_calls=calls or None)
