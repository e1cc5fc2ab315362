"""Replays recordings of sglang: the engine gives the recorded output, and the server must answer
like the real one.

Every ``*.jsonl`` in ``data`` is replayed; to add a recording, put it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from sfusion.fakes.sglang import (
    Ask,
    EngineRefused,
    FakeSGLang,
    FakeSGLangServer,
    Finish,
    Latency,
    Reply,
    Step,
)

DATA = Path(__file__).parent / "data"
EOS = 151645
CONTEXT = 64

Record = dict[str, Any]


def records(key: str) -> list[Record]:
    """Return the records with a key: ``engine_chunks`` for the chat route, ``method`` for all
    others."""
    lines = [
        line
        for path in sorted(DATA.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [record for record in map(json.loads, lines) if key in record]


class RecordedTokenizer:
    """The tokenizer of the recordings: prompts have a fixed number of tokens."""

    eos_token_id = EOS
    pad_token_id = EOS
    vocab_size = 200_000

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt = list(range(1, prompt_tokens + 1))

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        """The same ids for every text; none for an empty one."""
        return list(self._prompt) if text else []

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return ""

    def apply_chat_template(self, messages: Any, tools: Any = None, **options: Any) -> Any:
        return list(self._prompt)


class Recorded:
    """A policy that replays a recording."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def reply(self, ask: Ask) -> Reply:
        """Always the same."""
        return self._reply


def chat_reply(record: Record) -> Reply:
    """Return the recorded engine output for a chat request: its chunks, then a step with the finish
    reason."""
    finish = record["engine_finish_reason"]
    steps = [Step(chunk, (100 + number,)) for number, chunk in enumerate(record["engine_chunks"])]
    kind = record["id"].partition("/")[0]
    error: Exception | None = None
    if kind == "engine_503":
        error = EngineRefused("The request queue is full.")
    elif kind == "engine_crash":
        error = RuntimeError("boom")
    return Reply(
        steps=(*steps, Step("", (EOS,))),
        finish=Finish.read(finish) if finish else None,
        prompt_tokens=11,
        cached_tokens=4,
        error=error,
    )


def chat_server(record: Record) -> FakeSGLangServer:
    """Start a server with the options of the recording."""
    too_long = record["id"].startswith("context_length")
    engine = FakeSGLang(
        Recorded(chat_reply(record)),
        tokenizer=RecordedTokenizer(70 if too_long else 11),
        context_length=CONTEXT,
    )
    return FakeSGLangServer(
        engine,
        tool_call_parser=record["tool_call_parser"],
        reasoning_parser=record["reasoning_parser"],
        report_cache=record["id"].startswith("cache_report"),
    )


def native_server(record: Record) -> FakeSGLangServer:
    """Start a server with the engine of the recordings of sglang's own routes."""
    name = record["id"]
    error: Exception | None = None
    after = 0
    if name == "generate/queue_full":
        error = EngineRefused("The request queue is full.")
    elif name == "generate/crash":
        error = RuntimeError("boom")
    elif name == "generate/stream_mid_error":
        error, after = ValueError("mid stream failure"), 2
    logprobs = (-0.1, -0.2, -0.30000000000000004)
    steps = [Step(text, (100 + at,), (logprobs[at],)) for at, text in enumerate("abc")]
    reply = Reply(
        steps=tuple(steps),
        finish=Finish("length", length=3),
        cached_tokens=0,
        error=error,
        error_after=after,
    )
    tokens = 70 if "context_length" in name else 3
    slow = Latency(first_token=3600.0) if name in ("flush/busy", "flush/timeout") else Latency()
    engine = FakeSGLang(
        Recorded(reply), tokenizer=RecordedTokenizer(tokens), context_length=CONTEXT, latency=slow
    )
    return FakeSGLangServer(engine, tool_call_parser="qwen")


async def ask(url: str, record: Record, path: str, method: str = "POST") -> dict[str, Any]:
    """Send a recorded request, and return the answer in the form of the recording."""
    request = record["request"]
    headers = {}
    data: bytes | None = None
    if isinstance(request, str):
        data = request.encode()
    elif request is not None:
        data = json.dumps(request).encode()
    if data is not None:
        headers["content-type"] = (
            "text/plain" if record["id"].endswith("content_type") else "application/json"
        )
    async with (
        aiohttp.ClientSession(skip_auto_headers=["content-type"]) as session,
        session.request(method, url + path, data=data, headers=headers) as answer,
    ):
        text = (await answer.read()).decode()
        response: dict[str, Any] = {
            "status": answer.status,
            "content_type": answer.headers.get("content-type"),
        }
    if "sse" in record:
        response["sse"] = text.split("\n\n")[:-1]
    elif "body" in record:
        response["body"] = json.loads(text)
    else:
        response["body_text"] = text
    return response


_SUBSTITUTIONS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"call_[0-9a-f]{24}", "call_<24hex>"),
        (r'("created": ?)\d+', r"\g<1>0"),
        (r'("e2e_latency": ?)[0-9.e-]+', r"\g<1>0.25"),
    ]
]
_RID = re.compile(r'("id": ?)"[0-9a-f]{32}"')


def normalised(response: Mapping[str, Any], rid: str) -> dict[str, Any]:
    """Replace what differs between runs as in the recordings, keeping the order of keys."""

    def scrub(text: str) -> str:
        for pattern, replacement in _SUBSTITUTIONS:
            text = pattern.sub(replacement, text)
        return _RID.sub(rf'\g<1>"{rid}"', text)

    flat = {key: response[key] for key in ("status", "content_type")}
    if "sse" in response:
        return flat | {"sse": [scrub(line) for line in response["sse"]]}
    if "body" in response:
        return flat | {"body": scrub(json.dumps(response["body"], ensure_ascii=False))}
    return flat | {"body_text": response["body_text"]}


async def replay_chat(record: Record) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answer of the fake, and the recorded one."""
    async with chat_server(record) as server:
        response = await ask(server.url, record, "/v1/chat/completions")
    return normalised(response, "req0"), normalised(record, "req0")
