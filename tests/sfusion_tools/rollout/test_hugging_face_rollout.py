"""A trajectory with a Hugging Face tokenizer: the same rules, its own template."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.fakes.sglang import FakeSGLang
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver, format_parser
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.tokenizers import load_tokenizer
from tests.sfusion_tools.rollout.helpers import RecordingTool, roles, schema
from tests.sfusion_tools.rollout.students import QUESTION, students
from tests.sfusion_tools.tokenizers.test_hugging_face import TEMPLATE, save_tokenizer

pytestmark = pytest.mark.xdist_group("transformers")

# Like Qwen's: tool results are part of a user turn.
USER_TURN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ 'user' if message.role == 'tool' else "
    "message.role }}\n"
    "{% if message.role == 'tool' %}<tool_response>\n{{ message.content }}\n</tool_response>"
    "{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def answers(code: str) -> tuple[str, float, dict[str, str]]:
    return ("3\n" if "at_least_one" in code else "149\n"), 1.0, {"outcome": "ok"}


@pytest.mark.parametrize(
    "template", [TEMPLATE, USER_TURN_TEMPLATE], ids=["tool role", "tool in a user turn"]
)
async def test_a_trajectory_has_the_tokens_of_the_whole_conversation(
    tmp_path: Path, template: str
) -> None:
    tokenizer = load_tokenizer(save_tokenizer(tmp_path, template))
    made = AsyncRolloutRequest(
        messages=[{"role": "user", "content": QUESTION}],
        tool_schemas=[schema()],
        processing_class=tokenizer,
    )
    engine = FakeSGLang(students(), format="hermes", tokenizer=tokenizer)
    done = await RolloutDriver(engine, [RecordingTool(answers)], format_parser("hermes")).run(made)
    assert done.state is State.COMPLETED
    assert roles(done.messages) == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    generated = tokenizer.decode(
        [i for i, mark in zip(done.input_ids, done.loss_mask, strict=True) if mark]
    )
    texts = generated.split("<|im_end|>")[:-1]
    conversation = [
        {"role": role, "content": text}
        for role, text in zip(
            roles(done.messages),
            [QUESTION, texts[0], "3\n", texts[1], "149\n", texts[2]],
            strict=True,
        )
    ]
    whole = tokenizer.apply_chat_template(conversation)
    assert tokenizer.decode(done.input_ids) == tokenizer.decode(whole).removesuffix("\n")
