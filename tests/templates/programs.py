"""Tools receive the code that a model wrote: ``python -m tests.templates.programs 10000`` draws as
many programs."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sfusion_tools.formats import get_format
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutDriver, format_parser
from sfusion_tools.tokenizers import Tokenizer, load_tokenizer
from tests.sfusion_tools.rollout.helpers import RecordingTool, schema
from tests.sfusion_tools.tokenizers.test_hugging_face import TEMPLATE, save_tokenizer

_PIECES = (
    *(
        "print('a , b .')",
        " n't",
        " 's",
        " ' s ' ",
        " .",
        " ?",
        " !",
        " ,",
        " 'm",
        " 've",
        "do not",
        "\n",
        "\r\n",
        "\t",
        "  ",
    ),
    *(
        "def f(x):\n    return x",
        "\\n",
        "\\d+",
        '"',
        "'",
        "'''",
        "\\",
        "½",
        "数学",
        "👩\u200d👩\u200d👧",
        "\u2028",
        "é",
    ),
    *(
        "<|im_end|>",
        "<|im_start|>",
        "<tool_call>",
        "</tool_call>",
        "</think>",
        "{",
        "}",
        "[1 , 2]",
        "x = 1 ;",
        "\x00",
    ),
)
CALLS = 25
"""Calls in a turn."""


def unlucky_tokenizer(directory: Path) -> Tokenizer:
    """A tokenizer whose config asks for changes of what it decodes, as that of Llama 3 does."""
    config = save_tokenizer(directory, TEMPLATE) / "tokenizer_config.json"
    content = json.loads(config.read_text(encoding="utf-8")) | {
        "clean_up_tokenization_spaces": True
    }
    config.write_text(json.dumps(content), encoding="utf-8")
    return load_tokenizer(directory)


def draw(drawn: random.Random) -> str:
    return "".join(drawn.choices(_PIECES, k=drawn.randint(1, 8)))


async def received(tokenizer: Tokenizer, programs: list[str], form: str) -> list[str]:
    """Let a model write calls with these programs, and return what the tool was given."""
    text = get_format(form).render(
        [{"name": "code_interpreter", "arguments": {"code": code}} for code in programs]
    )
    got: list[str] = []

    def run(code: str) -> tuple[str, float, dict[str, Any]]:
        got.append(code)
        return code, 0.0, {"outcome": "ok"}

    class Written:
        async def async_generate(self, **_: Any) -> dict[str, Any]:
            ids = [*tokenizer.encode(text, allow_special=False), tokenizer.eos_token_id]
            return {
                "output_ids": ids,
                "meta_info": {"finish_reason": {"type": "stop", "matched": ids[-1]}},
            }

    made = AsyncRolloutRequest(
        messages=[{"role": "user", "content": "?"}],
        tool_schemas=[schema()],
        processing_class=tokenizer,
        max_assistant_turns=2,
    )
    done = await RolloutDriver(Written(), [RecordingTool(run)], format_parser(form)).run(made)
    assert done.failure is None, done.failure
    replies = [message.content for message in done.messages if message.role == "tool"]
    assert replies == got
    return got


def compare(count: int, seed: int = 0) -> int:
    """Return how many programs were received as they were written; raises AssertionError for the
    first that was not."""
    drawn = random.Random(seed)
    with TemporaryDirectory() as directory:
        tokenizer = unlucky_tokenizer(Path(directory))
    same = 0
    while same < count:
        programs = [draw(drawn) for _ in range(min(CALLS, count - same))]
        got = asyncio.run(received(tokenizer, programs, "hermes"))
        assert sorted(got) == sorted(programs), set(programs) ^ set(got)
        same += len(programs)
    return same


if __name__ == "__main__":
    sys.stdout.write(f"{compare(int(sys.argv[1]))} programs were received as they were written\n")
