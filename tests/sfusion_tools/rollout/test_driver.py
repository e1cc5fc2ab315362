"""One trajectory from start to end: tools are created, run concurrently, rewarded, and always
released."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion_tools.formats import Parsed, StreamParser, get_format
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout import EndCause, RolloutDriver, format_parser
from sfusion_tools.rollout.driver import read_generated
from sfusion_tools.rollout.turns import TOLD_REFUSALS
from sfusion_tools.schemas import ToolResponse
from sfusion_tools.tokenizers import ByteTokenizer
from tests.sfusion_tools.rollout.helpers import (
    TOKENIZER,
    RecordingTool,
    ScriptedEngine,
    calling,
    request,
    roles,
    schema,
)

PARSE = format_parser("hermes")


async def test_a_trajectory_runs_through_its_tools_and_is_rewarded() -> None:
    tool = RecordingTool()
    engine = ScriptedEngine(calling("3"), "Three.")
    done = await RolloutDriver(engine, [tool], PARSE).run(request())
    assert (done.state, done.ended_by) == (State.COMPLETED, EndCause.ANSWERED)
    assert roles(done.messages) == ["user", "assistant", "tool", "assistant"]
    assert done.tool_rewards == {"code_interpreter": [1.0]}
    assert done.reward_scores == {"code_interpreter": 0.0}
    assert done.metrics.outcomes == {"ok": 1}
    assert tool.released == [done.request_id]
    assert engine.asked[1]["input_ids"] == done.input_ids[: len(engine.asked[1]["input_ids"])]


async def test_the_calls_of_a_turn_run_at_the_same_time() -> None:
    tool = RecordingTool()
    tool.together, tool.expected = asyncio.Event(), 3
    done = await RolloutDriver(ScriptedEngine(calling("1", "2", "3"), "ok"), [tool], PARSE).run(
        request()
    )
    assert tool.peak == 3
    assert [message.content for message in done.messages[2:5]] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("answer", "text", "reward"),
    [
        (("printed\n", "printed\n", {}), "printed\n", None),
        (("printed\n", 0.5, None), "printed\n", 0.5),
        ((ToolResponse(text=None), None, None), "", None),
    ],
    ids=["verl 0.4: text as reward", "verl 0.5: plain text", "verl 0.9: nothing to say"],
)
async def test_results_of_all_verl_releases_are_accepted(
    answer: Any, text: str, reward: float | None
) -> None:
    tool = RecordingTool(lambda code: answer)
    done = await RolloutDriver(ScriptedEngine(calling("x"), "ok"), [tool], PARSE).run(request())
    assert done.state is State.COMPLETED
    assert done.messages[2].content == text
    assert done.tool_rewards == {"code_interpreter": [reward]}


async def test_create_arguments_reach_a_tool_spread_and_nested() -> None:
    tool = RecordingTool()
    req = request(tools_kwargs={"code_interpreter": {"create_kwargs": {"ground_truth": "3"}}})
    await RolloutDriver(ScriptedEngine("Three."), [tool], PARSE).run(req)
    assert tool.created[req.request_id] == {
        "ground_truth": "3",
        "create_kwargs": {"ground_truth": "3"},
    }


async def test_a_tool_that_raises_affects_only_its_own_call() -> None:
    def answer(code: str) -> Any:
        if code == "bad":
            raise RuntimeError("the wire broke")
        return ToolResponse(text=code), 1.0, {"outcome": "ok"}

    tool = RecordingTool(answer)
    done = await RolloutDriver(ScriptedEngine(calling("bad", "good"), "ok"), [tool], PARSE).run(
        request()
    )
    assert done.state is State.COMPLETED
    assert [m.content for m in done.messages[2:4]] == [
        "Error executing tool 'code_interpreter': the wire broke",
        "good",
    ]
    assert done.tool_rewards == {"code_interpreter": [0.0, 1.0]}
    assert done.metrics.tool_errors == 1
    assert done.metrics.infrastructure_failures == 1
    assert tool.open_instances == []


async def test_an_unreadable_call_is_answered_and_the_model_may_try_again() -> None:
    bad = (
        '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": '
        '"re.match(\\d)"}\n</tool_call>'
    )
    tool = RecordingTool()
    done = await RolloutDriver(ScriptedEngine(bad, calling("3"), "ok"), [tool], PARSE).run(
        request()
    )
    assert roles(done.messages) == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert "was not made" in str(done.messages[2].content)
    assert done.metrics.refused == {"malformed": 1}
    assert done.metrics.executed == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("```python\nprint(3)\n```", "fenced_code"),
        ('{"name": "code_interpreter", "arguments": {"code": "print(3)"}}', "untagged_call"),
        ("<|python_tag|>print(3)", "stray_marker"),
        (f"<think>\n{calling('draft')}\n</think>\n\nI wait.", "call_in_think"),
    ],
)
async def test_a_call_in_another_format_is_answered_instead_of_ending_the_request(
    text: str, kind: str
) -> None:
    done = await RolloutDriver(ScriptedEngine(text, "ok"), [RecordingTool()], PARSE).run(request())
    assert roles(done.messages) == ["user", "assistant", "tool", "assistant"]
    assert done.metrics.noticed == {kind: 1}
    assert done.metrics.refused == {"malformed": 1}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ('{"id": "call_2", "name": "code_interpreter", "arguments": {"code": "print(4)"}}', True),
        ("functions.code_interpreter({'code': 'print(4)'})", True),
        ("<|python_tag|>print(4)", True),
        ("</tool_call>", False),
        ("```python\nprint(4)\n```", False),
    ],
)
@pytest.mark.parametrize("first", [True, False])
async def test_a_call_that_was_only_noticed_beside_a_good_one_is_told_to_the_model(
    other: str, told: bool, first: bool
) -> None:
    texts = (other, calling("3")) if first else (calling("3"), other)
    done = await RolloutDriver(
        ScriptedEngine("\n\n".join(texts), "ok"), [RecordingTool()], PARSE
    ).run(request())
    answers = [str(message.content) for message in done.messages if message.role == "tool"]
    assert done.metrics.executed == 1
    assert done.metrics.refused == ({"malformed": 1} if told else {})
    assert len(answers) == 1 + told
    if told:
        assert (
            "so no call was made" in answers[not first] or "it was not made" in answers[not first]
        )


async def test_a_parser_that_fails_refuses_the_call_and_not_the_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def call(self: StreamParser, name: str, *_args: Any, **_kwargs: Any) -> None:
        raise KeyError(name)

    text = f"Let me see.\n{calling('1', '2')} Two calls."
    monkeypatch.setattr(StreamParser, "call", call)
    one = request()
    await RolloutDriver(ScriptedEngine(text, "7"), [RecordingTool()], format_parser("hermes")).run(
        one
    )
    assert (one.state, one.ended_by) == (State.COMPLETED, EndCause.ANSWERED)
    assert one.metrics.refused == {"malformed": 1}
    assert one.messages[1].content == "Let me see."
    assert one.messages[2].content.startswith(
        "Error: A tool call was not made: it could not be read. Write calls as "
    )
    (record,) = caplog.records
    assert record.exc_info
    assert "the hermes parser failed" in record.message

    stream = get_format("hermes").stream()
    pieces = [delta for char in text for delta in stream.feed(char)] + stream.finish()
    assert [problem.kind for problem in Parsed.of(pieces).problems] == ["parser_failed"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pythonic", "[code_interpreter(code={{1}})]"),
        ("pythonic", f"[code_interpreter(code=0x{'f' * 3600})]"),
        (
            "llama3",
            "<|python_tag|>{'name': 'code_interpreter', 'parameters': {'code': 0x%s}}"
            % ("f" * 3600),
        ),
    ],
    ids=["a set in a set", "an integer in pythonic", "an integer in llama3"],
)
async def test_a_value_that_is_not_json_is_refused_and_not_a_failure(name: str, text: str) -> None:
    one, tool = request(), RecordingTool()
    await RolloutDriver(ScriptedEngine(text, "7"), [tool], format_parser(name)).run(one)
    assert (one.state, one.metrics.refused, one.metrics.infrastructure_failures) == (
        State.COMPLETED,
        {"malformed": 1},
        0,
    )


@pytest.mark.parametrize("limits", [{}, {"max_parallel_calls": 4}])
async def test_many_refused_calls_get_few_answers(limits: dict[str, int]) -> None:
    one = request(**limits)
    text = calling(*map(str, range(4))) + "<tool_call>" + "{}" * 1000 + "</tool_call>"
    await RolloutDriver(ScriptedEngine(text, "7"), [RecordingTool()], format_parser("hermes")).run(
        one
    )
    _, turn, *answers, last = one.messages
    assert (last.role, one.metrics.calls, one.metrics.executed) == ("assistant", 1004, 4)
    assert one.metrics.refused == {"malformed": 1000}
    assert len(answers) == 4 + TOLD_REFUSALS + 1
    assert "984 more calls of this turn were not executed (malformed: 984)" in answers[-1].content
    assert (
        sum("A tool call was not made" in answer.content for answer in answers)
        == TOLD_REFUSALS
        == 16
    )
    assert [call.id for call in turn.tool_calls or ()] == [
        answer.tool_call_id for answer in answers[:4]
    ]


async def test_every_call_in_an_assistant_message_is_answered_however_many_were_too_many() -> None:
    one = request(max_parallel_calls=1)
    text = calling(*map(str, range(100)))
    await RolloutDriver(ScriptedEngine(text, "7"), [RecordingTool()], format_parser("hermes")).run(
        one
    )
    _, turn, *answers, _ = one.messages
    assert one.metrics.refused == {"too_many_parallel_calls": 99}
    assert [call.id for call in turn.tool_calls or ()] == [
        answer.tool_call_id for answer in answers
    ]
    assert len(answers) == 1 + TOLD_REFUSALS + 1


async def test_a_call_after_unclosed_thinking_is_executed() -> None:
    tool = RecordingTool()
    done = await RolloutDriver(
        ScriptedEngine(f"<think>\nhm\n{calling('3')}", "ok"), [tool], PARSE
    ).run(request())
    assert done.metrics.executed == 1
    assert done.metrics.noticed == {"unclosed_think": 1}
    assert str(done.messages[1].content).startswith("<think>\nhm")


async def test_a_draft_inside_closed_thinking_is_not_executed() -> None:
    text = f"<think>\n{calling('draft')}\n</think>\n\n{calling('real')}"
    done = await RolloutDriver(ScriptedEngine(text, "ok"), [RecordingTool()], PARSE).run(request())
    assert done.metrics.executed == 1
    assert roles(done.messages) == ["user", "assistant", "tool", "assistant"]
    assert done.messages[2].content == "real"
    assert done.metrics.noticed == {"call_in_think": 1}


@pytest.mark.parametrize("moment", ["create", "generate", "calc_reward", "release"])
async def test_tools_are_released_whatever_fails(moment: str) -> None:
    class Failing(RecordingTool):
        async def create(
            self, instance_id: str | None = None, **kwargs: Any
        ) -> tuple[str, ToolResponse]:
            made = await super().create(instance_id, **kwargs)
            if moment == "create":
                raise OSError("no room")
            return made

        async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
            if moment == "calc_reward":
                raise OSError("no room")
            return 1.0

        async def release(self, instance_id: str, **kwargs: Any) -> None:
            await super().release(instance_id)
            if moment == "release":
                raise OSError("no room")

    other = RecordingTool(name="other")
    tool = Failing()
    engine = ScriptedEngine(calling("3"), OSError("gone") if moment == "generate" else "Three.")
    req = request(tool_schemas=[schema(), schema("other")])
    done = await RolloutDriver(engine, [tool, other], PARSE).run(req)
    assert tool.released == other.released == [req.request_id]
    wanted = {
        "create": (State.FAILED, EndCause.TOOL_CREATION, "OSError: no room", 0),
        "generate": (State.FAILED, EndCause.ENGINE, "OSError: gone", 0),
        "calc_reward": (State.COMPLETED, EndCause.ANSWERED, "OSError: no room", 0),
        "release": (State.COMPLETED, EndCause.ANSWERED, None, 1),
    }
    assert (done.state, done.ended_by, done.failure, done.metrics.release_errors) == wanted[moment]


async def test_a_cancelled_request_releases_its_tools_even_if_cancelled_again() -> None:
    class Slow(RecordingTool):
        releasing, may_release = asyncio.Event(), asyncio.Event()

        async def release(self, instance_id: str, **kwargs: Any) -> None:
            self.releasing.set()
            await self.may_release.wait()
            await super().release(instance_id)

    tool = Slow()
    tool.together, tool.expected = asyncio.Event(), 2  # never set: only one call runs
    req = request()
    task = asyncio.ensure_future(
        RolloutDriver(ScriptedEngine(calling("3")), [tool], PARSE).run(req)
    )
    await tool.busy.wait()
    task.cancel()
    await tool.releasing.wait()
    assert tool.running == 0
    task.cancel()
    await asyncio.sleep(0)
    tool.may_release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (req.state, req.ended_by) == (State.FAILED, EndCause.CANCELLED)
    assert tool.released == [req.request_id]


async def test_a_cancellation_during_the_release_is_raised_after_it() -> None:
    class Slow(RecordingTool):
        async def release(self, instance_id: str, **kwargs: Any) -> None:
            task.cancel()
            await asyncio.sleep(0)
            await super().release(instance_id)

    tool, req = Slow(), request()
    task = asyncio.ensure_future(RolloutDriver(ScriptedEngine("ok"), [tool], PARSE).run(req))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (req.state, tool.released) == (State.COMPLETED, [req.request_id])


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"output_ids": [1]},
        {"meta_info": {"finish_reason": {"type": "stop"}}},
        {"output_ids": [1], "meta_info": {"finish_reason": {"type": "tired"}}},
        {"output_ids": [9999], "meta_info": {"finish_reason": {"type": "stop"}}},
    ],
)
async def test_an_invalid_answer_of_the_engine_fails_the_request(answer: Any) -> None:
    class Nonsense:
        async def async_generate(
            self, *, input_ids: list[int], sampling_params: dict[str, Any]
        ) -> Any:
            return answer

    done = await RolloutDriver(Nonsense(), [RecordingTool()], PARSE).run(request())
    assert (done.state, done.ended_by) == (State.FAILED, EndCause.ENGINE)


async def test_markers_in_text_without_ids_are_logged_once_for_a_tokenizer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    finish = {"finish_reason": {"type": "stop"}}
    tokenizer = ByteTokenizer()
    read_generated({"text": "Three.", "meta_info": finish}, tokenizer)
    assert caplog.text == ""
    for _ in range(2):
        read_generated({"text": "<|im_start|>Three.", "meta_info": finish}, tokenizer)
    (record,) = caplog.records
    assert "encoded as letters" in record.message


async def test_a_tokenizer_that_cannot_be_remembered_is_logged_once_for_its_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unhashable(ByteTokenizer):
        def __eq__(self, other: object) -> bool:
            return other is self

        __hash__ = None  # type: ignore[assignment]

    for _ in range(2):
        answer = {"text": "<|im_start|>Three.", "meta_info": {"finish_reason": "stop"}}
        read_generated(answer, Unhashable())
    (record,) = caplog.records
    assert "encoded as letters" in record.message


async def test_text_without_ids_is_encoded_and_counted() -> None:
    class Texts:
        async def async_generate(
            self, *, input_ids: list[int], sampling_params: dict[str, Any]
        ) -> Any:
            return {"text": "Three.", "meta_info": {"finish_reason": {"type": "stop"}}}

    done = await RolloutDriver(Texts(), [RecordingTool()], PARSE).run(request())
    assert TOKENIZER.decode(done.response_ids) == "Three.<|im_end|>"
    assert done.metrics.retokenised_turns == 1


async def test_the_engine_is_never_asked_for_more_tokens_than_are_left() -> None:
    engine = ScriptedEngine(calling("3"), "Three.")
    req = request(max_response_len=500)
    await RolloutDriver(
        engine, [RecordingTool()], PARSE, sampling_params={"max_new_tokens": 300}
    ).run(req)
    first, second = engine.asked
    assert first["max_new_tokens"] == 300
    assert second["max_new_tokens"] == min(
        300, 500 - (len(second["input_ids"]) - len(first["input_ids"]))
    )


async def test_the_user_side_answers_until_it_ends_the_conversation() -> None:
    class Doubter:
        def __init__(self) -> None:
            self.log: list[str] = []

        async def start_interaction(self, instance_id: str, **kwargs: Any) -> None:
            self.log.append(f"start {kwargs['goal']}")

        async def generate_response(
            self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
        ) -> tuple[bool, str, float | None, dict[str, Any]]:
            return messages[-1]["content"] == "Four.", "Are you sure?", 0.5, {}

        async def finalize_interaction(self, instance_id: str) -> None:
            self.log.append("end")

    doubter = Doubter()
    driver = RolloutDriver(
        ScriptedEngine("Three.", "Four."), [RecordingTool()], PARSE, interaction=doubter
    )
    done = await driver.run(request(interaction_kwargs={"goal": "four"}))
    assert roles(done.messages) == ["user", "assistant", "user", "assistant"]
    assert (done.state, done.ended_by) == (State.COMPLETED, EndCause.INTERACTION)
    assert done.interaction_scores == [0.5, 0.5]
    assert doubter.log == ["start four", "end"]

    class Stop(BaseException):
        pass

    class Stopping(RecordingTool):
        async def release(self, instance_id: str, **kwargs: Any) -> None:
            raise Stop

    driver = RolloutDriver(ScriptedEngine("Four."), [Stopping()], PARSE, interaction=doubter)
    with pytest.raises(Stop):
        await driver.run(request(interaction_kwargs={"goal": "five"}))
    assert doubter.log[2:] == ["start five", "end"]


async def test_a_request_for_an_unknown_tool_fails_with_its_name() -> None:
    done = await RolloutDriver(ScriptedEngine("x"), [RecordingTool()], PARSE).run(
        request(tool_schemas=[schema("search")])
    )
    assert done.state is State.FAILED
    assert done.failure == "no tool is called search; the driver has code_interpreter"


async def test_a_call_is_executed_when_the_prompt_ends_inside_the_thinking() -> None:
    parse = format_parser("hermes", in_think=True)
    done = await RolloutDriver(
        ScriptedEngine(f"hm\n{calling('3')}", "ok"), [RecordingTool()], parse
    ).run(request())
    assert done.metrics.executed == 1
