"""The answers of the completions route, whole and streamed.

What the answers of all routes share, such as errors and token counts, is here too.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, TypedDict

from sfusion_tools.tokenizers import Tokenizer

from ..wire.message import Answer, dump_json
from .protocol import EngineOutput, FinishReason, JsonObject, LogprobRow, MetaInfo
from .schema import ChatCompletionRequest, CompletionRequest

DONE = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream; charset=utf-8"


def event(body: Any) -> bytes:
    """One event of a stream, in compact JSON."""
    return b"data: " + dump_json(body) + b"\n\n"


class FlatError(TypedDict):
    """The error object of the OpenAI routes."""

    object: str
    message: str
    type: str
    param: str | None
    code: int


class Usage(TypedDict):
    """The token counts of an answer."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: dict[str, int] | None
    reasoning_tokens: int


def flat_error(message: str, type: str = "BadRequestError", code: int = 400) -> FlatError:
    """The error object of the OpenAI routes."""
    return {"object": "error", "message": message, "type": type, "param": None, "code": code}


def error_answer(message: str, type: str = "BadRequestError", code: int = 400) -> Answer:
    return Answer.json(flat_error(message, type, code), status=code)


def error_event(message: str, type: str = "BadRequestError", code: int = 400) -> bytes:
    """An error inside a stream; sglang writes this one event with spaces."""
    body = {"error": flat_error(message, type, code)}
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def native_error_event(message: str, code: int = 400) -> bytes:
    """An error inside a stream of ``/generate``."""
    retryable = code >= 500
    kind = "server_error" if retryable else "invalid_request_error"
    error = {"message": message, "type": kind, "code": code, "retryable": retryable}
    return event({"error": error})


def usage(metas: Mapping[int, MetaInfo], samples: int = 1, report_cache: bool = False) -> Usage:
    """Token counts of some choices, by their indices.

    A prompt with several samples is counted once. Cached tokens are there if there are any.
    """
    firsts = [meta for index, meta in metas.items() if index % samples == 0]
    prompt = sum(meta["prompt_tokens"] for meta in firsts)
    completion = sum(meta["completion_tokens"] for meta in metas.values())
    cached = sum(meta["cached_tokens"] for meta in firsts) if report_cache else 0
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        "reasoning_tokens": sum(meta["reasoning_tokens"] for meta in metas.values()),
    }


def chat_logprobs(meta: MetaInfo, since: int = 0) -> JsonObject:
    """Log probabilities in the form of the chat route."""
    tops = meta.get("output_top_logprobs", [])
    content: list[JsonObject] = []
    for at, row in enumerate(meta["output_token_logprobs"][since:], start=since):
        top = [_chat_token(alternative) for alternative in tops[at]] if tops else []
        content.append(_chat_token(row) | {"top_logprobs": top})
    return {"content": content}


def _chat_token(row: LogprobRow) -> JsonObject:
    """Return a token as the chat route writes it."""
    logprob, _, text = row
    return {"token": text, "bytes": _bytes(text), "logprob": logprob}


def _bytes(text: str) -> list[int]:
    return list(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class AnswerView(ABC):
    """Makes the answer to one request of an OpenAI route, as its options say."""

    kind: ClassVar[str]
    request: ChatCompletionRequest | CompletionRequest
    created: int
    report_cache: bool

    def body(self, outputs: Sequence[EngineOutput]) -> JsonObject:
        """The answer to a request that does not stream."""
        metas = {index: output["meta_info"] for index, output in enumerate(outputs)}
        choices = [self._choice(index, output) for index, output in enumerate(outputs)]
        return {
            "id": metas[0]["id"],
            "object": self.kind,
            "created": self.created,
            "model": self.request.model,
            "choices": choices,
            "usage": usage(metas, self.request.n, self.report_cache),
            "metadata": {"weight_version": metas[0]["weight_version"]},
        }

    @abstractmethod
    def _choice(self, index: int, output: EngineOutput) -> JsonObject: ...

    @abstractmethod
    def stream(self) -> AnswerStream:
        """What makes the events of the answer to a request that streams."""


class AnswerStream(ABC):
    """Turns the engine's stream into the events of an OpenAI route."""

    kind: ClassVar[str]

    def __init__(self, view: AnswerView) -> None:
        self._view = view
        self._metas: dict[int, MetaInfo] = {}
        """The last meta information of each choice."""
        self._shown: dict[int, int] = {}
        """How many characters of each choice were sent."""
        options = view.request.stream_options
        self._include_usage = bool(options and options.include_usage)
        self._continuous = bool(options and options.continuous_usage_stats)

    @property
    def begun(self) -> bool:
        """True once anything was sent to the client."""
        return bool(self._metas)

    def feed(self, output: EngineOutput) -> Iterator[bytes]:
        """Yield the events of one step of the engine.

        Raises StreamAborted for an abort with an error status.
        """
        index = output.get("index", 0)
        meta = output["meta_info"]
        finish = meta["finish_reason"]
        status = None if finish is None else error_status(finish)
        if finish is not None and status is not None:
            raise StreamAborted(finish["message"], status)

        first = index not in self._metas
        self._metas[index] = meta
        delta = output["text"][self._shown.get(index, 0) :]
        self._shown[index] = len(output["text"])
        yield from self._step(index, output, delta, first=first)

    @abstractmethod
    def _step(
        self, index: int, output: EngineOutput, delta: str, *, first: bool
    ) -> Iterator[bytes]:
        """Yield the events of a step that adds this text to a choice."""

    @abstractmethod
    def finish(self) -> Iterator[bytes]:
        """Yield the events after the last step."""

    def _total_usage(self) -> Usage:
        metas = dict(sorted(self._metas.items()))
        return usage(metas, self._view.request.n, self._view.report_cache)

    def _usage_so_far(self, index: int) -> Usage | None:
        """Token counts of one choice, if the request wants them with every event."""
        return usage({0: self._metas[index]}) if self._continuous else None

    def _chunk(self, choices: list[JsonObject]) -> JsonObject:
        return {
            "id": next(iter(self._metas.values()))["id"],
            "object": self.kind,
            "created": self._view.created,
            "model": self._view.request.model,
            "choices": choices,
        }


class StreamAborted(Exception):
    """Raised when the engine aborts a streaming request with an error status."""

    def __init__(self, message: str | None, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def event(self) -> bytes:
        """The error event for the client."""
        message = self.message or "Generation aborted."
        return error_event(message, HTTPStatus(self.status).name, self.status)


def finish_of(output: EngineOutput) -> FinishReason:
    """Return why a complete output ended."""
    finish = output["meta_info"]["finish_reason"]
    assert finish is not None, "only an output that is not complete has no finish reason"
    return finish


def error_status(finish: FinishReason) -> int | None:
    """Return the error status with which a generation was aborted; None for any other end."""
    if finish["type"] != "abort":
        return None
    return finish.get("status_code")


@dataclass(frozen=True)
class CompletionView(AnswerView):
    kind = "text_completion"
    request: CompletionRequest
    tokenizer: Tokenizer

    def stream(self) -> CompletionStream:
        return CompletionStream(self)

    def echo(self, index: int) -> str:
        """Return the prompt of a choice if the request wants it repeated."""
        if not self.request.echo:
            return ""
        prompt: Any = self.request.prompt
        is_batch = not isinstance(prompt, str) and not isinstance(prompt[0], int)
        if is_batch:
            prompt = prompt[index // self.request.n]
        if isinstance(prompt, str):
            return prompt
        return self.tokenizer.decode(prompt, skip_special_tokens=True)

    def logprobs(self, meta: MetaInfo, since: int, first: bool) -> JsonObject | None:
        """Return the log probabilities since a token, including the prompt's if it is repeated."""
        if self.request.logprobs is None:
            return None
        tokens = meta["output_token_logprobs"][since:]
        tops: list[list[LogprobRow] | None] = []
        tops += meta.get("output_top_logprobs", [])[since:]
        if first and self.request.echo:
            tokens = [*meta["input_token_logprobs"], *tokens]
            tops = [*meta.get("input_top_logprobs", []), *tops]

        return {
            "text_offset": [-1] * len(tokens),  # not supported
            "token_logprobs": [logprob for logprob, _, _ in tokens],
            "tokens": [text for _, _, text in tokens],
            "top_logprobs": [_by_text(top) for top in tops],
        }

    def _choice(self, index: int, output: EngineOutput) -> JsonObject:
        finish = finish_of(output)
        choice: JsonObject = {
            "index": index,
            "text": self.echo(index) + output["text"],
            "logprobs": self.logprobs(output["meta_info"], since=0, first=True),
            "finish_reason": finish["type"],
            "matched_stop": finish.get("matched"),
        }
        if self.request.return_token_ids:
            choice["token_ids"] = output["output_ids"]
            choice["prompt_token_ids"] = output.get("prompt_token_ids")
        return choice


def _by_text(top: Sequence[LogprobRow] | None) -> dict[str, float] | None:
    """Return the most probable tokens as texts and log probabilities.

    The first token of a prompt has none.
    """
    if top is None:
        return None
    return {text: logprob for logprob, _, text in top}


class CompletionStream(AnswerStream):
    """Turns the engine's stream into the events of the completions route."""

    kind = "text_completion"
    _view: CompletionView

    def __init__(self, view: CompletionView) -> None:
        super().__init__(view)
        self._tokens: dict[int, int] = {}
        """How many tokens of each choice were sent."""

    def _step(
        self, index: int, output: EngineOutput, delta: str, *, first: bool
    ) -> Iterator[bytes]:
        view = self._view
        meta = output["meta_info"]
        finish = meta["finish_reason"] or {}
        sent = self._tokens.get(index, 0)
        echo = view.echo(index) if first else ""
        choice: JsonObject = {
            "index": index,
            "text": echo + delta,
            "logprobs": view.logprobs(meta, sent, first),
            "finish_reason": finish.get("type"),
            "matched_stop": finish.get("matched"),
        }
        if view.request.return_token_ids:
            choice["token_ids"] = output["output_ids"][sent:]
            if first:
                choice["prompt_token_ids"] = output.get("prompt_token_ids")

        self._tokens[index] = meta["completion_tokens"]
        yield event(self._chunk([choice]) | {"usage": self._usage_so_far(index)})

    def finish(self) -> Iterator[bytes]:
        """Yield the usage event after the last step, if the request wants it.

        Its null values are left out, unlike in the other events.
        """
        if not self._include_usage:
            return
        total = self._total_usage()
        known = {key: value for key, value in total.items() if value is not None}
        yield event(self._chunk([]) | {"usage": known})
