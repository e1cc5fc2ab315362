"""The server answers every malformed text, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfusion.fakes.sglang import FakeSGLang, ScriptedPolicy, ScriptedTurn
from sfusion.fakes.sglang.malformed import TOOLS, catalogue
from sfusion.fakes.sglang.routes import ModelInfo
from sfusion.fakes.sglang.server import SGLangApp
from sfusion.fakes.wire import Request
from tests.sfusion_tools.formats.recordings import every_parser


class IgnoredExecution:
    """An execution listener that ignores everything."""

    def started(self) -> None:
        pass

    def finished(self) -> None:
        pass

    def failed(self, event: str, **more: Any) -> None:
        pass


async def answered(text: str, form: str, stream: bool) -> bytes:
    engine = FakeSGLang(ScriptedPolicy([ScriptedTurn(say=text)]), format=form, stream_interval=5)
    app = SGLangApp(engine, ModelInfo(tool_call_parser=form))
    asked = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": list(TOOLS),
        "stream": stream,
    }
    request = Request(
        "POST",
        "/v1/chat/completions",
        "",
        {"Content-Type": "application/json"},
        body=json.dumps(asked).encode(),
    )
    answer = await app.visit(request).answer(IgnoredExecution())
    assert answer.status == 200, answer.body
    if answer.stream is None:
        return answer.body
    return b"".join([piece async for piece in answer.stream])


@pytest.mark.parametrize("form", every_parser())
async def test_good_calls_in_a_malformed_text_are_returned_whole_and_streamed(form: str) -> None:
    for bad in catalogue(seed=5, forms=[form]):
        # The server passes unknown names on, while the catalogue expects a parser that refuses
        # them; and a call without a name can only be repaired if no other names are allowed.
        if bad.kind == "unknown_tool" or (
            form in ("kimi_k2", "apertus") and bad.kind == "missing_name"
        ):
            continue
        whole = json.loads(await answered(bad.text, form, stream=False))["choices"][0]["message"][
            "tool_calls"
        ]
        got = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in whole or ()
        ]
        assert got == [(call["name"], call["arguments"]) for call in bad.calls], bad.kind
        streamed: dict[int, list[str]] = {}
        for line in (await answered(bad.text, form, stream=True)).decode().split("\n\n")[:-2]:
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                for piece in choice["delta"].get("tool_calls") or ():
                    call = streamed.setdefault(piece["index"], ["", ""])
                    call[0] += piece["function"]["name"] or ""
                    call[1] += piece["function"]["arguments"]
        assert [(name, json.loads(arguments)) for name, arguments in streamed.values()] == got, (
            bad.kind
        )
