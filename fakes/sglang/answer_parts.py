"""Parts of answers that the routes share: errors, usage, events, log probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sfusion.fakes.sglang.protocol import JsonObject
from sfusion.fakes.wire import Answer
from sfusion.fakes.wire.message import dump_json

DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream; charset=utf-8"


def event(body: Any) -> bytes:
    """One event of a stream, in compact JSON."""
    return b"data: " + dump_json(body) + b"\n\n"


def flat_error(message: str, type: str = "BadRequestError", code: int = 400) -> JsonObject:
    """The error object of the OpenAI routes."""
    return {"object": "error", "message": message, "type": type, "param": None, "code": code}


def error_answer(message: str, type: str = "BadRequestError", code: int = 400) -> Answer:
    return Answer.json(flat_error(message, type, code), status=code)


def error_event(message: str, type: str = "BadRequestError", code: int = 400) -> bytes:
    """An error inside a stream; sglang writes this one event with spaces."""
    return f"data: {json.dumps({'error': flat_error(message, type, code)}, ensure_ascii=False)}\n\n".encode()


def native_error(message: str) -> JsonObject:
    return {"error": {"message": message}}


def native_error_event(message: str, code: int = 400) -> bytes:
    """An error inside a stream of ``/generate``."""
    retryable = code >= 500
    kind = "server_error" if retryable else "invalid_request_error"
    return event({"error": {"message": message, "type": kind, "code": code, "retryable": retryable}})


def usage(prompt: int, completion: int, cached: int | None = None, reasoning: int = 0) -> JsonObject:
    """Token counts; cached tokens only if they are reported and not zero."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        "reasoning_tokens": reasoning,
    }


def total_usage(metas: Mapping[int, JsonObject], samples: int, report_cache: bool) -> JsonObject:
    """Token counts of all choices; a prompt with several samples is counted once."""
    firsts = [meta for index, meta in metas.items() if index % samples == 0]
    return usage(
        sum(meta["prompt_tokens"] for meta in firsts),
        sum(meta["completion_tokens"] for meta in metas.values()),
        sum(meta["cached_tokens"] for meta in firsts) if report_cache else None,
        sum(meta["reasoning_tokens"] for meta in metas.values()),
    )


def meta_usage(meta: JsonObject) -> JsonObject:
    """Token counts of one choice so far."""
    return usage(meta["prompt_tokens"], meta["completion_tokens"], None, meta["reasoning_tokens"])


def chat_logprobs(meta: JsonObject, since: int = 0) -> JsonObject:
    """Log probabilities in the form of the chat route."""
    tops = meta.get("output_top_logprobs") or []
    rows = []
    for at, (logprob, _, text) in enumerate(meta["output_token_logprobs"][since:], start=since):
        top = [{"token": t, "bytes": _bytes(t), "logprob": p} for p, _, t in tops[at]] if tops else []
        rows.append({"token": text, "bytes": _bytes(text), "logprob": logprob, "top_logprobs": top})
    return {"content": rows}


def completion_logprobs(tokens: Sequence[Sequence[Any]], tops: Iterable[Sequence[Sequence[Any]] | None]) -> JsonObject:
    """Log probabilities in the form of the completions route; offsets are not supported and are always -1."""
    return {
        "text_offset": [-1 for _ in tokens],
        "token_logprobs": [logprob for logprob, _, _ in tokens],
        "tokens": [text for _, _, text in tokens],
        "top_logprobs": [None if top is None else {text: logprob for logprob, _, text in top} for top in tops],
    }


def _bytes(text: str) -> list[int]:
    return list(text.encode("utf-8", "surrogatepass"))
