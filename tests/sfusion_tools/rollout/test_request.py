"""The rules of a trajectory, without an engine or tools."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sfusion_tools.outcome import Outcome
from sfusion_tools.rollout import (
    AsyncRolloutRequest,
    EndCause,
    FoundCall,
    IllegalTransition,
    ParsedTurn,
    Refusal,
    RolloutLimits,
    ToolResult,
    UnreadableCall,
)
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout import FinishReasonTypeEnum as Finish
from sfusion_tools.schemas import ToolResponse
from sfusion_tools.tokenizers import ByteTokenizer

TOKENIZER = ByteTokenizer()
CALL = FoundCall("code_interpreter", {"code": "print(3)"})
ROWS = ("ids", "attention_mask", "position_ids", "loss_mask")


def schema(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "A tool."}}


def make(tools: tuple[str, ...] = ("code_interpreter",), **options: Any) -> AsyncRolloutRequest:
    """A started request."""
    request = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "How many?"}],
        tool_schemas=[schema(t) for t in tools],
        **options,
    )
    request.start()
    return request


def say(
    request: AsyncRolloutRequest,
    text: str,
    *calls: FoundCall | UnreadableCall,
    finish: Finish = Finish.STOP,
) -> list[int]:
    """Add an assistant turn; return its ids."""
    ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
    request.add_assistant_turn(ids, ParsedTurn(text, calls), finish)
    return ids


def answer(request: AsyncRolloutRequest, *texts: str, **options: Any) -> None:
    request.add_tool_results([ToolResult(ToolResponse(text=text), **options) for text in texts])


def check_rows(request: AsyncRolloutRequest) -> None:
    """All rows have the same length, and prompt and response add up to the whole."""
    for part in ("prompt_", "response_"):
        assert len({len(getattr(request, part + row)) for row in ROWS}) == 1
    for row in ROWS:
        whole = request.input_ids if row == "ids" else getattr(request, row)
        assert getattr(request, "prompt_" + row) + getattr(request, "response_" + row) == whole
    assert request.position_ids == list(range(len(request.input_ids)))


def trained_text(request: AsyncRolloutRequest) -> str:
    marked = zip(request.input_ids, request.loss_mask, strict=True)
    return TOKENIZER.decode([number for number, mark in marked if mark])


def test_a_new_request_is_pending_and_has_only_its_prompt() -> None:
    request = AsyncRolloutRequest(messages=[{"role": "user", "content": "hi"}], max_response_len=8)
    assert request.state is State.PENDING
    assert request.response_ids == []
    assert (
        TOKENIZER.decode(request.prompt_ids)
        == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert TOKENIZER.decode(request.generation_prompt_ids) == "<|im_start|>assistant\n"
    check_rows(request)


def test_an_answer_without_calls_completes_the_request() -> None:
    request = make()
    say(request, "Three.")
    assert (request.state, request.ended_by) == (State.COMPLETED, EndCause.ANSWERED)
    assert request.finish_reason is Finish.STOP


def test_the_engines_ids_are_kept_unchanged() -> None:
    request = make()
    # Ids that encoding the text would not give: half a character, and a special token in the
    # middle.
    odd = [0xC3, 257, ord("a"), TOKENIZER.eos_token_id]
    request.add_assistant_turn(odd, ParsedTurn("?", (CALL,)), Finish.STOP)
    assert request.response_ids == odd
    answer(request, "3\n")
    assert request.response_ids[: len(odd)] == odd


def test_only_the_assistants_tokens_are_trained_on() -> None:
    request = make(interaction_kwargs={})
    say(request, "I compute.", CALL)
    answer(request, "SECRET TOOL TEXT")
    say(request, "Is it three?")
    request.add_user_turn("SECRET USER TEXT")
    say(request, "Yes.")
    request.end_interaction()
    assert trained_text(request) == "I compute.<|im_end|>Is it three?<|im_end|>Yes.<|im_end|>"
    assert "SECRET TOOL TEXT" in TOKENIZER.decode(request.response_ids)
    assert "SECRET USER TEXT" in TOKENIZER.decode(request.response_ids)
    check_rows(request)


def test_the_tokens_equal_those_of_the_conversation_rendered_as_a_whole() -> None:
    request = make()
    say(request, "I compute.", CALL)
    answer(request, "3\n")
    messages = [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": "I compute."},
        {"role": "tool", "content": "3\n"},
    ]
    rendered = TOKENIZER.apply_chat_template(
        messages, request.tool_schemas, add_generation_prompt=True
    )
    assert request.input_ids == rendered


def test_an_unclosed_turn_is_closed_with_an_untrained_token() -> None:
    request = make()
    request.add_assistant_turn(
        TOKENIZER.encode("calling"), ParsedTurn("calling", (CALL,)), Finish.TOOL_CALL
    )
    answer(request, "3")
    assert TOKENIZER.decode(request.response_ids).startswith(
        "calling<|im_end|>\n<|im_start|>tool\n3<|im_end|>"
    )
    assert trained_text(request) == "calling"


def test_calls_of_a_turn_are_answered_in_order_and_rewarded() -> None:
    request = make()
    say(request, "two", CALL, CALL)
    assert request.state is State.TOOL_CALLING
    answer(request, "first", "second", reward=0.5, metrics={"outcome": Outcome.OK})
    assert request.state is State.RUNNING
    replies = request.messages[-2:]
    assert [message.content for message in replies] == ["first", "second"]
    calls = request.messages[-3].tool_calls
    assert calls is not None
    assert [message.tool_call_id for message in replies] == [call.id for call in calls]
    assert request.tool_rewards == {"code_interpreter": [0.5, 0.5]}
    assert request.metrics.outcomes == {"ok": 2}


@pytest.mark.parametrize(
    ("call", "reason", "message"),
    [
        (
            UnreadableCall("Invalid \\escape at character 12"),
            Refusal.MALFORMED,
            "Invalid \\escape at character 12",
        ),
        (
            FoundCall("solve_equation", {}),
            Refusal.UNKNOWN_TOOL,
            "Tools that can be called: code_interpreter",
        ),
        (
            FoundCall("code_interpreter", ["print(1)"]),
            Refusal.BAD_ARGUMENTS,
            "but a list was given",
        ),
        (
            FoundCall("code_interpreter", '{"code": 1}'),
            Refusal.BAD_ARGUMENTS,
            "but a string was given",
        ),
        (FoundCall("code_interpreter", None), Refusal.BAD_ARGUMENTS, "but null was given"),
    ],
)
def test_a_refused_call_is_answered_and_counted(
    call: FoundCall | UnreadableCall, reason: Refusal, message: str
) -> None:
    request = make()
    say(request, "calling", call)
    assert request.calls_to_execute == []
    request.add_tool_results([])
    assert request.state is State.RUNNING
    assert request.messages[-1].role == "tool"
    assert message in str(request.messages[-1].content)
    assert request.metrics.refused == {reason.value: 1}
    assert request.metrics.infrastructure_failures == 0


def test_a_bad_call_does_not_drop_the_others_of_its_turn() -> None:
    request = make()
    say(request, "three", CALL, UnreadableCall("no name"), CALL)
    answer(request, "first", "third")
    assert [str(m.content)[:5] for m in request.messages[-3:]] == ["first", "Error", "third"]


def test_calls_beyond_max_parallel_calls_are_answered_not_dropped() -> None:
    request = make(max_parallel_calls=1)
    say(request, "three", CALL, CALL, CALL)
    assert len(request.calls_to_execute) == 1
    answer(request, "3")
    assert [message.role for message in request.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
    ]
    assert "at most 1 tool call" in str(request.messages[-1].content)
    assert request.metrics.refused == {Refusal.TOO_MANY.value: 2}


def test_tool_text_is_truncated_even_if_it_is_an_error() -> None:
    request = make(max_tool_response_length=10, tool_response_truncate_side="right")
    say(request, "two", CALL, UnreadableCall("x" * 99))
    answer(request, "0123456789")
    assert request.messages[-2].content == "0123456789"
    assert request.messages[-1].content == "Error: xxx...(truncated)"
    assert request.metrics.shortened_responses == 1


def test_invalid_calls_in_a_row_end_the_request_and_a_valid_one_resets_the_count() -> None:
    request = make(max_consecutive_invalid_calls=2)
    bad = UnreadableCall("no name")
    for calls, results in (([bad], 0), ([CALL], 1), ([bad], 0)):
        say(request, "calling", *calls)
        answer(request, *["3"] * results)
        assert request.state is State.RUNNING
    say(request, "calling", CALL)
    answer(request, "code is missing", metrics={"outcome": "bad_arguments"})
    assert (request.state, request.ended_by) == (State.COMPLETED, EndCause.INVALID_CALLS)


def test_a_request_ended_by_invalid_calls_keeps_the_reply_but_no_header_of_another_turn() -> None:
    request = make(max_consecutive_invalid_calls=1)
    say(request, "calling", UnreadableCall("no name"))
    request.add_tool_results([])
    assert TOKENIZER.decode(request.response_ids).endswith(
        "<|im_start|>tool\nError: no name<|im_end|>\n"
    )
    assert request.messages[-1].role == "tool"
    cut = make(max_consecutive_invalid_calls=1, max_response_len=len(request.response_ids) - 3)
    say(cut, "calling", UnreadableCall("no name"))
    cut.add_tool_results([])
    assert cut.ended_by is EndCause.INVALID_CALLS
    assert cut.response_ids == request.response_ids[:-3]


def test_calls_refused_by_max_parallel_calls_do_not_count_as_invalid() -> None:
    request = make(max_consecutive_invalid_calls=1, max_parallel_calls=1)
    say(request, "two", CALL, CALL)
    answer(request, "3")
    assert request.state is State.RUNNING


def test_the_last_allowed_turn_ends_the_request_and_its_calls_count_as_not_run() -> None:
    request = make(max_assistant_turns=1)
    say(request, "calling", CALL, CALL)
    assert (request.state, request.ended_by) == (State.COMPLETED, EndCause.ASSISTANT_TURNS)
    assert request.metrics.not_run == 2


def test_max_user_turns_ends_the_request() -> None:
    request = make(interaction_kwargs={}, max_user_turns=1)
    say(request, "Three?")
    assert request.state is State.INTERACTING
    request.add_user_turn("No.", score=0.25)
    assert request.state is State.RUNNING
    say(request, "Four?")
    assert (request.state, request.ended_by) == (State.COMPLETED, EndCause.USER_TURNS)
    assert request.interaction_scores == [0.25]


def test_a_prompt_that_is_too_long_fails_at_once() -> None:
    request = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "x" * 99}], max_prompt_len=50
    )
    request.start()
    assert (request.state, request.ended_by) == (State.FAILED, EndCause.PROMPT_TOO_LONG)
    assert request.failure is not None
    assert "max_prompt_len is 50" in request.failure


@pytest.mark.parametrize("left", [1, 0, -1])
@pytest.mark.parametrize("limit", ["max_response_len", "max_model_len"])
def test_tool_text_that_leaves_at_most_one_token_ends_by_length_without_an_error(
    left: int, limit: str
) -> None:
    def run(**limits: int) -> AsyncRolloutRequest:
        request = make(**limits)
        say(request, "calling", CALL)
        answer(request, "149\n")
        return request

    free = run()
    used = len(free.response_ids) if limit == "max_response_len" else len(free.input_ids)
    request = run(**{limit: used + left})
    if left == 1:
        assert request.state is State.RUNNING
        assert request.tokens_left == 1
        request.add_assistant_turn([ord("T")], ParsedTurn("T"), Finish.LENGTH)
    assert (request.state, request.ended_by) == (State.COMPLETED, EndCause.LENGTH)
    assert request.finish_reason is Finish.LENGTH
    assert request.tokens_left == 0
    assert request.messages[2].content == "149\n"
    assert request.metrics.dropped_tokens == max(-left, 0)
    check_rows(request)


def test_tokens_beyond_the_limit_are_cut_and_end_the_request() -> None:
    request = make(max_response_len=3)
    say(request, "far too long", CALL)
    assert (request.state, request.ended_by) == (State.COMPLETED, EndCause.LENGTH)
    assert request.response_ids == TOKENIZER.encode("far")
    assert request.metrics.not_run == 1


def test_a_turn_that_fits_exactly_does_not_end_by_length() -> None:
    request = make(max_response_len=len("Three.") + 1)
    say(request, "Three.")
    assert request.ended_by is EndCause.ANSWERED


def test_an_aborted_generation_fails_the_request() -> None:
    request = make()
    say(request, "Thr", finish=Finish.ABORT)
    assert (request.state, request.ended_by) == (State.FAILED, EndCause.ENGINE)


def test_infrastructure_failures_are_counted_separately() -> None:
    request = make()
    say(request, "calling", CALL, CALL, CALL)
    request.add_tool_results(
        [
            ToolResult(ToolResponse(text="x"), metrics={"outcome": Outcome.PROGRAM_ERROR}),
            ToolResult(ToolResponse(text="x"), metrics={"outcome": Outcome.UNREACHABLE}),
            ToolResult(ToolResponse(text="x"), raised=True),
        ]
    )
    assert request.metrics.outcomes == {"program_error": 1, "unreachable": 1}
    assert request.metrics.infrastructure_failures == 2


def test_steps_that_the_state_does_not_allow_raise() -> None:
    request = AsyncRolloutRequest(messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(
        IllegalTransition, match="is pending; this step is allowed only when it is running"
    ):
        say(request, "too early")
    request.start()
    with pytest.raises(IllegalTransition):
        request.start()
    say(request, "done")
    with pytest.raises(IllegalTransition, match="is already completed"):
        request.fail(EndCause.ERROR, "late")


def test_the_number_of_results_must_match_the_calls() -> None:
    request = make()
    say(request, "calling", CALL)
    with pytest.raises(IllegalTransition, match="expected 1 results, got 2"):
        answer(request, "a", "b")


def test_duplicate_or_misspelt_limits_are_refused() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(ValidationError, match="given twice"):
        AsyncRolloutRequest(messages=messages, limits=RolloutLimits(), max_response_len=3)
    with pytest.raises(ValidationError, match="max_respnse_len"):
        AsyncRolloutRequest(messages=messages, max_respnse_len=3)
    with pytest.raises(ValidationError, match="at least 1"):
        AsyncRolloutRequest(messages=messages, max_response_len=0)


TURNS = st.lists(
    st.tuples(
        st.text(max_size=12),
        st.lists(
            st.sampled_from([CALL, UnreadableCall("no name"), FoundCall("nobody", {})]), max_size=3
        ),
        st.text(max_size=20),
        st.sampled_from([Finish.STOP, Finish.STOP, Finish.STOP, Finish.LENGTH]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=32)
@given(
    TURNS,
    st.one_of(st.none(), st.integers(1, 120)),
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.integers(1, 2)),
)
def test_rows_always_have_equal_length_within_the_limit(
    turns: list[tuple[str, list[FoundCall | UnreadableCall], str, Finish]],
    max_response_len: int | None,
    max_assistant_turns: int | None,
    max_parallel_calls: int | None,
) -> None:
    request = make(
        max_response_len=max_response_len,
        max_assistant_turns=max_assistant_turns,
        max_parallel_calls=max_parallel_calls,
    )
    generated: list[int] = []
    for text, calls, reply, finish in turns:
        if request.state.is_final:
            break
        generated += say(request, text, *calls, finish=finish)
        check_rows(request)
        if request.state is State.TOOL_CALLING:
            answer(request, *[reply] * len(request.calls_to_execute))
            check_rows(request)
    if max_response_len is not None:
        assert len(request.response_ids) <= max_response_len
    marked = zip(request.input_ids, request.loss_mask, strict=True)
    trained = [number for number, mark in marked if mark]
    assert trained == generated[: len(trained)]
    metrics = request.metrics
    pending = len(request.calls_to_execute)
    assert (
        metrics.calls
        == metrics.executed + sum(metrics.refused.values()) + metrics.not_run + pending
    )


@pytest.mark.parametrize("over", [0, 1])
def test_a_prompt_that_leaves_no_token_for_a_reply_fails_at_once(over: int) -> None:
    prompt = [{"role": "user", "content": "x" * 99}]
    length = len(AsyncRolloutRequest(messages=prompt).prompt_ids)
    request = AsyncRolloutRequest(messages=prompt, max_model_len=length - over)
    request.start()
    assert (request.state, request.ended_by) == (State.FAILED, EndCause.PROMPT_TOO_LONG)
    assert request.failure is not None
    assert f"max_model_len is {length - over}" in request.failure


def test_steps_by_hand_give_the_rows_of_the_driver():
    """verl 0.6.1's callers build the conversation themselves."""
    ours, theirs = (
        make(),
        AsyncRolloutRequest(
            messages=[{"role": "user", "content": "How many?"}],
            tool_schemas=[schema("code_interpreter")],
            tokenization_sanity_check_mode="strict",
            use_inference_chat_template=False,
        ),
    )
    ids = say(ours, "calling", CALL)
    answer(ours, "3", metrics={"outcome": "ok"})
    assert theirs.get_generation_prompt_ids(TOKENIZER) == theirs.input_ids
    theirs.add_assistant_message(TOKENIZER, "calling", content_ids=[ids])
    theirs.add_tool_response_messages(TOKENIZER, [ToolResponse()])
    theirs.add_tool_response_messages(TOKENIZER, [ToolResponse(text="3")])
    theirs.update_metrics({"outcome": "ok"}, "code_interpreter")
    assert theirs.get_generation_prompt_ids(TOKENIZER) == ours.input_ids
    say(ours, "It is 3.")
    theirs.add_assistant_message(TOKENIZER, "It is 3.")
    theirs.get_generation_prompt_ids(TOKENIZER)
    theirs.finalize(TOKENIZER, {"code_interpreter": [1.0]})
    for row in ROWS:
        name = f"response_{row}"
        assert getattr(theirs, name) == getattr(ours, name)
    assert (theirs.state, theirs.ended_by, theirs.metrics.outcomes) == (
        ours.state,
        ours.ended_by,
        {"ok": 1},
    )
    assert theirs.reward_scores == {"code_interpreter": [1.0]}
    assert [message.role for message in theirs.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_steps_by_hand_respect_the_limits_and_refuse_what_they_cannot_hold():
    request = make(max_response_len=4)
    request.add_assistant_message(None, "a long turn")
    with pytest.raises(ValueError, match="text only"):
        request.add_tool_response_messages(None, [ToolResponse(image=["x"])])
    with pytest.raises(ValueError, match="by stop or length"):
        request.finalize(None, {}, Finish.ABORT)
    request.add_user_message(None, "more")
    request.finalize(None, {}, Finish.LENGTH)
    assert (len(request.response_ids), request.ended_by) == (4, EndCause.LENGTH)
