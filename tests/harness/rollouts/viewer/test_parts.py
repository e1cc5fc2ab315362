"""The parts of a trajectory, in whichever template and format it was written."""

from __future__ import annotations

import pytest

from sfusion.harness.rollouts.viewer.parts import CallView, split_turns
from sfusion_tools.formats import format_names, get_format
from tests.harness.rollouts.viewer.dumps import CALL, record


def test_turns_are_split_at_role_names_on_a_line_of_their_own() -> None:
    turns = split_turns(record("2 + 2?", "4\n")["output"])
    assert [(turn.role, [part.kind for part in turn.parts]) for turn in turns] == [
        ("assistant", ["think", "call"]),
        ("tool", ["text"]),
        ("assistant", ["text"]),
    ]
    assert turns[1].parts[0].text == "4"


def test_turns_are_split_at_special_tokens_if_the_dump_has_them() -> None:
    text = (
        "I "
        "say.<|im_end|>\n<|im_start|>tool\nuser\n4<|im_end|>\n<|im_start|>assistant\n#### "
        "4<|im_end|>"
    )
    turns = split_turns(text)
    assert [(turn.role, turn.parts[0].text) for turn in turns] == [
        ("assistant", "I say."),
        ("tool", "user\n4"),
        ("assistant", "#### 4"),
    ]


def test_unclosed_thinking_ends_at_the_call() -> None:
    (turn,) = split_turns(f"<think>\nhm\n{CALL}")
    assert [part.kind for part in turn.parts] == ["think", "call"]


def test_a_call_has_real_line_breaks_and_a_malformed_one_only_its_name() -> None:
    (turn,) = split_turns(CALL)
    assert turn.parts[0].call == CallView("code_interpreter", (("code", "x = 2\nprint(x)"),))
    (turn,) = split_turns(
        '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": \n</tool_call>'
    )
    (part,) = turn.parts
    assert part.call is not None
    assert (part.call.name, part.call.arguments) == ("code_interpreter", ())
    assert "was not made" in part.call.problem


@pytest.mark.parametrize("name", format_names())
def test_a_well_formed_call_of_any_format_is_shown_as_one(name: str) -> None:
    calls = [{"name": "code_interpreter", "arguments": {"code": code}} for code in ("a\nb", "c")]
    (turn,) = split_turns(get_format(name).render(calls, "Let me see."))
    assert [part.kind for part in turn.parts] == ["text", "call", "call"]
    assert turn.parts[0].text == "Let me see."
    shown = [part.call and part.call.arguments for part in turn.parts[1:]]
    assert shown == [(("code", "a\nb"),), (("code", "c"),)]


FAMILIES = {
    "llama": (
        "<|start_header_id|>user<|end_header_id|>\n\n2 + 2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        '<|python_tag|>{"name": "f", "parameters": {"code": "2"}}<|eom_id|>'
        "<|start_header_id|>ipython<|end_header_id|>\n\n4<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nIt is 4.<|eot_id|>"
    ),
    "gpt-oss": (
        "<|start|>user<|message|>2 + 2?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
        '{"code": "2"}<|call|>'
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>4<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is 4.<|return|>"
    ),
    "gemma 4": (
        "<|turn>user\n2 + 2?<turn|>\n<|turn>model\n"
        '<|tool_call>call:f{code:<|"|>2<|"|>}<tool_call|><turn|>\n'
        "<|turn>tool\n4<turn|>\n<|turn>model\nIt is 4.<turn|>"
    ),
    "glm": (
        "<|user|>\n2 + 2?<|assistant|>\n<think>Hm.</think>\n<tool_call>f\n"
        "<arg_key>code</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
        "<|observation|>\n4<|assistant|>\nIt is 4."
    ),
    "deepseek": (
        "<｜User｜>2 + 2?<｜Assistant｜></think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f"
        '<｜tool▁sep｜>{"code": "2"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
        "<｜tool▁outputs▁begin｜>4<｜tool▁outputs▁end｜><｜Assistant｜>It is 4."
    ),
    "kimi": (
        "<|im_user|>user<|im_middle|>2 + 2?<|im_end|><|im_assistant|>assistant<|im_middle|>"
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
        '<|tool_call_argument_begin|>{"code": "2"}<|tool_call_end|><|tool_calls_section_end|>'
        "<|im_end|><|im_system|>tool<|im_middle|>4<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>It is 4.<|im_end|>"
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_turns_of_other_templates_are_not_shown_as_raw_text(family: str) -> None:
    turns = split_turns(FAMILIES[family], "prompt")
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert turns[0].parts[0].text == "2 + 2?"
    (call,) = [part.call for part in turns[1].parts if part.call]
    assert call == CallView("f", (("code", "2"),))
    assert turns[2].parts[0].text == "4"
    assert turns[3].parts[0].text == "It is 4."
