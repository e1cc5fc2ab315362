"""Tool turns are rendered right with the chat templates of current models."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.sglang import FakeSGLang, FakeSGLangServer, ScriptedPolicy
from sfusion_tools.formats import get_format
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver, TemplateError, format_parser
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout.continuation import continuation
from sfusion_tools.rollout.outline import call_id
from sfusion_tools.tokenizers import ByteTokenizer, Tokenizer, TokenizerError, load_tokenizer
from tests.sfusion_tools.rollout.helpers import RecordingTool, schema
from tests.sfusion_tools.rollout.model_templates import MODELS, REPLIES, TEMPLATES, Model
from tests.sfusion_tools.tokenizers.test_hugging_face import TEMPLATE, save_tokenizer

pytestmark = pytest.mark.xdist_group("transformers")

CASES = [
    pytest.param(model, mode, id=f"{model.name} {mode}".strip())
    for model in MODELS
    for mode in model.modes
]
USER = {"role": "user", "content": "And then?"}


class ScriptedIds:
    """An engine that generates these turns in order."""

    def __init__(self, turns: list[list[int]]) -> None:
        self.turns = iter(turns)

    async def async_generate(
        self, *, input_ids: list[int], sampling_params: dict[str, Any]
    ) -> dict[str, Any]:
        ids = next(self.turns)
        return {
            "output_ids": ids,
            "meta_info": {"finish_reason": {"type": "stop", "matched": ids[-1]}},
        }


@cache
def tokenizer_of(model: Model, mode: str) -> Tokenizer:
    with TemporaryDirectory() as directory:
        save_tokenizer(Path(directory), model.template, model.eos, model.special)
        return load_tokenizer(directory, **model.modes[mode])


def turns_of(model: Model, mode: str) -> list[str]:
    """One call, then two (or one, if there cannot be more), then the answer."""
    form = get_format(model.format)
    thought, end = model.thought.get(mode, ""), model.call_end or model.eos
    counts = (1, 1 if model.one_call else 2)
    programs = iter("abc")
    texts = [
        form.render(
            [
                {"name": "code_interpreter", "arguments": {"code": next(programs)}}
                for _ in range(count)
            ]
        )
        for count in counts
    ]
    return [*(f"{thought}{text}{end}" for text in texts), f"{thought}It is 152.{model.eos}"]


@cache
def run(model: Model, mode: str) -> tuple[AsyncRolloutRequest, list[list[int]]]:
    tokenizer = tokenizer_of(model, mode)
    turns = [tokenizer.encode(text) for text in turns_of(model, mode)]
    replies = iter(REPLIES)
    tool = RecordingTool(lambda code: (next(replies), 1.0, {"outcome": "ok"}))
    made = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "How many?"}],
        tool_schemas=[schema()],
        processing_class=tokenizer,
    )
    parse = format_parser(
        model.format, in_think=tokenizer.decode(made.prompt_ids).endswith("<think>")
    )
    return asyncio.run(RolloutDriver(ScriptedIds(turns), [tool], parse).run(made)), turns


@pytest.mark.parametrize(("model", "mode"), CASES)
def test_turns_and_replies_alternate_as_the_template_writes_them(model: Model, mode: str) -> None:
    done, turns = run(model, mode)
    tokenizer = tokenizer_of(model, mode)
    assert (done.state, done.failure) == (State.COMPLETED, None)
    marked = zip(done.input_ids, done.loss_mask, strict=True)
    assert [number for number, mark in marked if mark] == [
        number for turn in turns for number in turn
    ]
    first, second, last = turns_of(model, mode)
    told = REPLIES[:1], REPLIES[1:2] if model.one_call else REPLIES[1:]
    text = re.sub(
        r'"call_id": "[0-9a-z]{9}"', '"call_id": "ID"', tokenizer.decode(done.response_ids)
    )
    assert (
        text == first + model.between(told[0], mode) + second + model.between(told[1], mode) + last
    )


@pytest.mark.parametrize(("model", "mode"), CASES)
def test_a_user_message_follows_a_turn_once_whichever_token_ended_it(
    model: Model, mode: str
) -> None:
    tokenizer = tokenizer_of(model, mode)
    closing = continuation(tokenizer, [USER], last=None)
    for end in (None, *tokenizer.encode(model.eos), *tokenizer.encode(model.call_end or model.eos)):
        ids = continuation(tokenizer, [USER], last=end)
        assert tokenizer.decode(ids).count("And then?") == 1
        # At most one token is left out: the one that ends the turn.
        assert ids == closing or (ids == closing[1:] and end is not None)
        assert ids[0] != end


def test_a_token_that_begins_a_message_is_kept_after_a_turn_that_ended_with_another_token() -> None:
    glm = tokenizer_of(next(model for model in MODELS if model.name == "GLM-4.5"), "on")
    for end, begins in (
        ("<|endoftext|>", "<|user|>\nAnd"),
        ("<|user|>", "\nAnd"),
        ("x", "<|user|>\nAnd"),
    ):
        (last,) = glm.encode(end)
        assert glm.decode(continuation(glm, [USER], last=last)).startswith(begins)


@pytest.mark.parametrize(("model", "mode"), CASES)
def test_a_turn_without_its_end_token_is_closed_once(model: Model, mode: str) -> None:
    tokenizer = tokenizer_of(model, mode)
    (end,) = tokenizer.encode(model.call_end or model.eos)
    reply = {"role": "tool", "content": "3", "tool_call_id": call_id(), "name": "code_interpreter"}
    opened = continuation(tokenizer, [reply], last=tokenizer.encode("x")[0])
    rest = continuation(tokenizer, [reply], last=end)
    assert opened[1:] == rest
    bare = continuation(tokenizer, [reply], last=end, add_generation_prompt=False)
    assert rest[: len(bare)] == bare


@pytest.mark.parametrize("content", ["ONE", "TWO", [{"type": "text", "text": "ONE"}]], ids=str)
def test_a_tool_may_say_the_words_that_the_template_is_tried_with(content: Any) -> None:
    tokenizer = ByteTokenizer()
    reply = {
        "role": "tool",
        "content": content,
        "tool_call_id": call_id(),
        "name": "code_interpreter",
    }
    word = content if isinstance(content, str) else content[0]["text"]
    assert word in tokenizer.decode(continuation(tokenizer, [reply], last=None))


def marked(file: str) -> tuple[str, list[str]]:
    """A template and the special tokens that are written in it."""
    template = (TEMPLATES / f"{file}.jinja").read_text(encoding="utf-8")
    return template, sorted(
        set(re.findall(r"<[|｜][^<>' ]+>|<[a-z_]+\\|>|<sep>", template)) - {"<｜DSML｜invoke"}
    )


@pytest.mark.parametrize(
    ("file", "end", "written"),
    [
        (
            "gemma-4",
            "<|tool_response>",
            'response:search{value:<|"|>A<|"|>}<tool_response|><|tool_response>response:run{value:<|"|>B<|"|>}<tool_response|>',
        ),
        (
            "kimi-k3",
            "<|end_of_msg|>",
            '<|open|>message role="tool" tool="search" '
            'index="1"<|sep|>A<|close|>message<|sep|><|end_of_msg|>'
            '<|open|>message role="tool" tool="run" '
            'index="2"<|sep|>B<|close|>message<|sep|><|end_of_msg|>'
            '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>',
        ),
        (
            "deepseek-v3.2",
            "<｜end▁of▁sentence｜>",
            "\n\n<function_results>\n<result>A</result>\n<result>B</result>\n</function_results>\n\n<think></think>",
        ),
        (
            "command-r7b",
            "<|END_OF_TURN_TOKEN|>",
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>[\n"
            '{"tool_call_id": "1", "results": {"0": "A"}},\n'
            '{"tool_call_id": "2", "results": {"0": '
            '"B"}}\n]<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>'
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>",
        ),
        (
            "solar-open",
            "<|calls|>",
            "<|begin|>tool<|tool_response|><|tool_response:begin|>i1<|tool_response:name|>search<|tool_response:result|>A"
            "<|tool_response:end|><|tool_response:begin|>i2<|tool_response:name|>run<|tool_response:result|>B"
            "<|tool_response:end|><|end|><|begin|>assistant",
        ),
        (
            "llama-4-json",
            "<|eot|>",
            "\n<|header_start|>ipython<|header_end|>\n\nA\n<|eom|>\n<|header_start|>ipython<|header_end|>\n\nB\n<|eom|>"
            "\n<|header_start|>assistant<|header_end|>\n\n",
        ),
        (
            "reka-edge",
            "<sep>",
            (
                "human: "
                "<tool_response>\nA\n</tool_response><tool_response>\nB\n</tool_response><sep>assistant:"
            ),
        ),
    ],
)
def test_replies_are_rendered_as_after_the_calls_that_they_answer(
    tmp_path: Path, file: str, end: str, written: str
) -> None:
    template, special = marked(file)
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, template, eos=end, special=special))
    call = {
        "id": "i0",
        "type": "function",
        "function": {"name": "search", "arguments": {"query": "x"}},
    }
    history = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "0", "tool_call_id": "i0", "name": "search"},
    ]
    replies = [
        {"role": "tool", "content": content, "tool_call_id": own, "name": name}
        for content, own, name in (("A", "i1", "search"), ("B", "i2", "run"))
    ]
    (last,) = tokenizer.encode(end)
    for _ in range(2):  # learnt, and known
        ids = continuation(tokenizer, replies, last=last, tools=[schema()], history=history)
        assert tokenizer.decode(ids) == written
    unended = continuation(tokenizer, replies, last=None, tools=[schema()], history=history)
    assert tokenizer.decode(unended) == end + written


KIMI_K3_CALLS = (
    '<|open|>tools<|sep|><|open|>call tool="code_interpreter" index="1"<|sep|>'
    '<|open|>argument key="code" type="string"<|sep|>1<|close|>argument<|sep|>'
)
KIMI_K3_ENDS = (
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "<|close|>message<|sep|>",
    "<|end_of_msg|>",
)


@pytest.mark.parametrize("written", [0, 1, 2, 3])
@pytest.mark.parametrize("eos", ["<|end_of_msg|>", "[EOS]"])
def test_tags_that_the_model_closed_are_not_closed_again(
    tmp_path: Path, eos: str, written: int
) -> None:
    """All tags of Kimi-K3 end with the same token, which may be the last of a turn's ids."""
    template, special = marked("kimi-k3")
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, template, eos=eos, special=special))
    begin = KIMI_K3_CALLS + "".join(KIMI_K3_ENDS[:1])
    turns = [f"<|close|>response<|sep|>{begin}{''.join(KIMI_K3_ENDS[1:written])}"] * 2
    if not written:
        turns = [turn.removesuffix(KIMI_K3_ENDS[0]) for turn in turns]
    made = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "How many?"}],
        tool_schemas=[schema()],
        processing_class=tokenizer,
    )
    answer = "It is 152.<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
    engine = ScriptedIds([tokenizer.encode(text) for text in (*turns, answer)])
    parse = format_parser("kimi_k3")
    done = asyncio.run(RolloutDriver(engine, [RecordingTool()], parse).run(made))
    assert done.failure is None
    text = tokenizer.decode(done.response_ids)
    closed = "".join(KIMI_K3_ENDS)
    for _ in range(2):
        _, calls, text = text.partition(KIMI_K3_CALLS)
        assert calls
        assert text.startswith(f'{closed}<|open|>message role="tool"')


@pytest.mark.parametrize(
    ("file", "options", "found"),
    [
        ("qwen3", {"enable_thinking": False}, "<think>"),
        ("hermes-3", {}, "<|im_end|>"),
        ("qwen2.5", {}, None),
        ("deepseek-v3.2", {}, None),
        ("solar-open", {}, None),
    ],
)
def test_what_differs_from_a_conversation_rendered_at_once_is_logged_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    file: str,
    options: dict[str, Any],
    found: str | None,
) -> None:
    template, special = marked(file)
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, template, special=special), **options)
    for text in ("1", "2"):
        continuation(
            tokenizer,
            [{"role": "tool", "content": text, "tool_call_id": "i"}],
            last=None,
            tools=[schema()],
        )
    logged = [record.message for record in caplog.records]
    assert len(logged) == (found is not None)
    for message in logged:
        assert message.startswith(
            f"The chat template of {tmp_path}: rendered at once, a conversation of"
        )
        assert str(found) in message


def test_a_template_that_differs_only_with_a_system_message_is_probed_with_the_request_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Mistral's templates move the system message to the last question."""
    moving = TEMPLATE.replace(
        "{% for message in messages %}",
        "{% for message in messages %}{% if messages[0].role == 'system' and loop.index == 2 %}"
        "{{ messages | length }}{% endif %}",
        1,
    )
    assert moving != TEMPLATE
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, moving))
    turn = {"role": "assistant", "content": "Yes."}
    continuation(tokenizer, [USER], last=None, history=[USER, turn])
    assert caplog.text == ""
    system = {"role": "system", "content": "Be brief."}
    for _ in range(2):
        continuation(tokenizer, [USER], last=None, history=[system, USER, turn])
    (record,) = caplog.records
    assert "rendered at once, a conversation of" in record.message


def test_a_known_template_is_rendered_once_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = ByteTokenizer()
    rendered: list[int] = []
    render = ByteTokenizer.apply_chat_template
    monkeypatch.setattr(
        ByteTokenizer,
        "apply_chat_template",
        lambda *given, **more: rendered.append(1) or render(*given, **more),
    )
    for text in ("1", "22", "Uvqo"):
        rendered.clear()
        reply = {"role": "tool", "content": text, "tool_call_id": f"i{text}", "name": "search"}
        ids = continuation(tokenizer, [reply], last=tokenizer.eos_token_id, history=[USER])
        assert (
            tokenizer.decode(ids)
            == f"\n<|im_start|>tool\n{text}<|im_end|>\n<|im_start|>assistant\n"
        )
    assert len(rendered) == 1


TOO_LATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}{% endif %}{% endfor %}"
    + TEMPLATE.replace(
        "{% for message in messages %}", "{% for message in messages if message.role != 'tool' %}"
    )
)
NO_TOOLS = (
    "{% for m in messages if m.role == 'tool' %}{{ raise_exception('No tools here.') }}{% endfor %}"
    + TEMPLATE
)
SUMMARY = TEMPLATE + "{{ messages | map(attribute='content') | join }}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (TOO_LATE, "leaves out the content of tool messages"),
        (NO_TOOLS, "No tools here"),
        (SUMMARY, "depends on the content of that turn"),
    ],
)
def test_a_template_that_cannot_be_split_is_named_with_the_reason(
    tmp_path: Path, template: str, reason: str
) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, template))
    reply = {"role": "tool", "content": "3", "tool_call_id": "call_1"}
    for messages in ([reply], [reply, {"role": "user", "content": "And now?"}]):
        with pytest.raises(TemplateError, match=re.escape(str(tmp_path))) as error:
            continuation(tokenizer, messages, last=None)
        assert reason in str(error.value)


def test_a_template_without_tools_is_continued_with_questions(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, NO_TOOLS))
    ids = continuation(tokenizer, [USER], last=None, history=[USER])
    assert (
        tokenizer.decode(ids)
        == "<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_renders_only_long_conversations_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = "{% if messages | length < 4 %}{{ raise_exception('Too short.') }}{% endif %}"
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, short + TEMPLATE))
    turn = {"role": "assistant", "content": "Yes."}
    ids = continuation(tokenizer, [USER], last=None, history=[USER, turn, USER])
    assert tokenizer.decode(ids).startswith("<|im_end|>\n<|im_start|>user")
    assert "it cannot render such a conversation (Too short.)" in caplog.text


@pytest.mark.parametrize(
    "body", ["{{ raise_exception('No.') }}", "{{ messages[0].content + 1 }}", "{{ none.x.y }}"]
)
async def test_whatever_a_template_raises_is_one_error_and_a_400_of_the_server(
    tmp_path: Path, body: str
) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, body))
    with pytest.raises(TemplateError, match=re.escape(f"the chat template of {tmp_path} raised ")):
        AsyncRolloutRequest(messages=[USER], processing_class=tokenizer)
    async with (
        FakeSGLangServer(FakeSGLang(ScriptedPolicy([]), tokenizer=tokenizer)) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        for path in ("/v1/chat/completions", "/tokenize"):
            async with session.post(path, json={"messages": [USER]}) as answer:
                assert (answer.status, "the chat template of" in await answer.text()) == (400, True)


CALLS_FIRST = (
    "{% set ns = namespace(called=false) %}{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if not ns.called %}{{ raise_exception('No call.') }}{% endif %}"
    "{% if loop.previtem.role != 'tool' %}<|im_start|>tool{% endif %}{{ '\n' + m.name + ': "
    "' + m.content }}"
    "{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}{% set ns.called = m.tool_calls "
    "is defined %}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function | tojson }}</call>{% "
    "endfor %}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_replies_stay_together_in_a_template_that_wants_calls_before_them(tmp_path: Path) -> None:
    """MiniMax-M2 is such a model."""
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, CALLS_FIRST))
    replies = [
        {"role": "tool", "content": name.upper(), "tool_call_id": call_id(name), "name": name}
        for name in ("a", "b")
    ]
    text = tokenizer.decode(continuation(tokenizer, replies, last=tokenizer.eos_token_id))
    assert text == "\n<|im_start|>tool\na: A\nb: B<|im_end|>\n<|im_start|>assistant\n"
    del replies[1]["name"]
    assert "\na: A\nunknown: B<|im_end|>" in tokenizer.decode(
        continuation(tokenizer, replies, last=None)
    )


NEEDS_TOOLS = (
    "{% for m in messages if m.role == 'tool' and not tools %}{{ "
    "raise_exception('No tools.') }}{% endfor %}"
)
NEEDS_SYSTEM = (
    "{% if messages[0].role != 'system' %}{{ raise_exception('No system message.') }}{% endif %}"
)


@pytest.mark.parametrize("needs", [NEEDS_TOOLS, NEEDS_SYSTEM])
def test_a_template_may_insist_on_tools_or_on_a_system_message(tmp_path: Path, needs: str) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, needs + TEMPLATE))
    plain = load_tokenizer(save_tokenizer(tmp_path / "plain", TEMPLATE))
    reply = [{"role": "tool", "content": "3", "tool_call_id": "call_1"}]
    ids = continuation(tokenizer, reply, last=None, tools=[schema()])
    assert ids == continuation(plain, reply, last=None, tools=[schema()])


def test_a_rollout_with_such_a_template_fails_and_releases_its_tools(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, SUMMARY))
    made = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "How many?"}],
        tool_schemas=[schema()],
        processing_class=tokenizer,
    )
    turn = tokenizer.encode(
        get_format("hermes").render([{"name": "code_interpreter", "arguments": {"code": "1"}}])
    )
    tool = RecordingTool()
    done = asyncio.run(
        RolloutDriver(ScriptedIds([turn]), [tool], format_parser("hermes")).run(made)
    )
    assert done.state is State.FAILED
    assert str(done.failure).startswith(
        f"{TemplateError.__name__}: the chat template of {tmp_path} cannot"
    )
    assert tool.open_instances == []


def test_ids_that_a_model_chose_are_kept_unless_they_are_refused_or_used_twice() -> None:
    by_name = {model.name: model for model in MODELS}
    nemo, kimi = tokenizer_of(by_name["Mistral-Nemo"], ""), tokenizer_of(by_name["Kimi-K2"], "")
    for own, written in (("abcdefgh9", "abcdefgh9"), ("call_1", call_id("call_1"))):
        ids = continuation(
            nemo, [{"role": "tool", "content": "3", "tool_call_id": own}], last=nemo.eos_token_id
        )
        assert f'"call_id": "{written}"' in nemo.decode(ids)
    call = (
        "<|tool_call_begin|>functions.code_interpreter:7"
        '<|tool_call_argument_begin|>{"code": "%s"}<|tool_call_end|>'
    )
    turn = kimi.encode(
        f"<|tool_calls_section_begin|>{call % 1}{call % 2}<|tool_calls_section_end|><|im_end|>",
        allow_special=True,
    )
    made = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "How many?"}],
        tool_schemas=[schema()],
        processing_class=kimi,
    )
    engine = ScriptedIds([turn, kimi.encode("Done.<|im_end|>")])
    done = asyncio.run(RolloutDriver(engine, [RecordingTool()], format_parser("kimi_k2")).run(made))
    first, second = done.messages[2:4]
    assert (first.content, second.content) == ("1", "2")
    assert first.tool_call_id == "functions.code_interpreter:7" != second.tool_call_id


def test_the_built_in_template_has_no_options() -> None:
    with pytest.raises(TokenizerError, match="enable_thinking"):
        load_tokenizer(enable_thinking=False)
    assert isinstance(load_tokenizer(), ByteTokenizer)
