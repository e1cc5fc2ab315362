"""The answers of the chat route, whole and streamed, made from the engine's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.fakes.sglang.answer_parts import chat_logprobs, error_event, event, meta_usage, total_usage
from sfusion.fakes.sglang.calls import CallParser, CallPiece, CallStream, Extract
from sfusion.fakes.sglang.protocol import JsonObject
from sfusion.fakes.sglang.reasoning import Harmony, HarmonyStream, Reasoning, ReasoningStream
from sfusion.fakes.sglang.schema import ChatCompletionRequest

CallId = Callable[[CallPiece, int], str]
"""Makes the id of a call, given its first piece and its choice."""


@dataclass(frozen=True, slots=True)
class ChatView:
    """The options of one chat request that shape its answer."""

    request: ChatCompletionRequest
    created: int
    call_id: CallId
    parser: CallParser | None = None
    reasoning: Reasoning | Harmony | None = None
    thinks: bool = False
    report_cache: bool = False

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        return [tool.model_dump() for tool in self.request.tools or ()]


def chat_body(view: ChatView, outputs: Sequence[JsonObject]) -> JsonObject:
    metas = {index: output["meta_info"] for index, output in enumerate(outputs)}
    return {
        "id": metas[0]["id"],
        "object": "chat.completion",
        "created": view.created,
        "model": view.request.model,
        "choices": [_choice(view, index, output) for index, output in enumerate(outputs)],
        "usage": total_usage(metas, view.request.n, view.report_cache),
        "metadata": {"weight_version": metas[0]["weight_version"]},
    }


def _choice(view: ChatView, index: int, output: JsonObject) -> JsonObject:
    meta = output["meta_info"]
    finish = meta["finish_reason"]
    text, thought = output["text"], ""
    if view.reasoning is not None:
        thought, text = view.reasoning.whole(text, view.thinks)
    extract = view.parser.whole(text, view.tools, finish["type"]) if view.parser is not None else None
    calls: list[JsonObject] | None = None
    reason, matched = finish["type"], finish.get("matched")
    if extract is not None:
        text = extract.content
        calls = [_call(view, piece, index) for piece in extract.pieces] or None
        if calls and reason == "stop":
            reason, matched = "tool_calls", None
    choice: JsonObject = {
        "index": index,
        "message": {
            "role": "assistant",
            "content": text or "",
            "reasoning_content": thought or None,
            "tool_calls": calls,
        },
        "logprobs": chat_logprobs(meta) if view.request.logprobs else None,
        "finish_reason": reason,
        "matched_stop": matched,
    }
    if view.request.return_prompt_token_ids:
        choice["prompt_token_ids"] = output.get("prompt_token_ids")
    if view.request.return_token_ids:
        choice["token_ids"] = output["output_ids"]
    if view.request.return_meta_info:
        choice["meta_info"] = meta
    return choice | _refused_calls(extract)


def _refused_calls(extract: Extract | None) -> JsonObject:
    """The refused calls, under a key that sglang does not have, so that they do not vanish silently."""
    refused = [problem.as_dict() for problem in extract.problems if problem.severity == "refused"] if extract else []
    return {"problems": refused} if refused else {}


def _call(view: ChatView, piece: CallPiece, choice: int) -> JsonObject:
    return {
        "id": view.call_id(piece, choice) if piece.name else None,
        "index": piece.index,
        "type": "function",
        "function": {"name": piece.name, "arguments": piece.arguments},
    }


@dataclass(slots=True)
class _Choice:
    """The state of one choice while it streams."""

    meta: JsonObject
    shown: int = 0
    logprobs_shown: int = 0
    calls: CallStream | None = None
    thinking: ReasoningStream | HarmonyStream | None = None
    called: bool = False
    extract: Extract = field(default_factory=Extract)


class ChatStream:
    """Turns the engine's stream into the events of the chat route."""

    def __init__(self, view: ChatView, incremental: bool = False) -> None:
        self._view = view
        self._incremental = incremental
        self._choices: dict[int, _Choice] = {}
        self._finished: dict[int, JsonObject] = {}
        options = view.request.stream_options
        self._include_usage = bool(options and options.include_usage)
        self._continuous = bool(options and options.continuous_usage_stats)

    @property
    def begun(self) -> bool:
        """True once anything was sent to the client."""
        return bool(self._choices)

    def feed(self, output: JsonObject) -> Iterator[bytes]:
        """Yield the events of one step of the engine; raises StreamAborted for an abort with an error status."""
        index, meta = output.get("index", 0), output["meta_info"]
        finish = meta["finish_reason"]
        if finish is not None:
            if is_error(finish):
                raise StreamAborted(finish)
            self._finished[index] = finish
        if index not in self._choices:
            self._choices[index] = self._begin(meta)
            yield self._plain(index, {"reasoning_content": None, "role": "assistant", "content": ""})
        choice = self._choices[index]
        choice.meta = meta
        delta = output["text"] if self._incremental else output["text"][choice.shown :]
        choice.shown += len(delta)
        yield from self._delta(index, choice, delta, finish)

    def _begin(self, meta: JsonObject) -> _Choice:
        view = self._view
        thinking = None
        if view.reasoning is not None:
            thinking = view.reasoning.stream(view.thinks, view.request.stream_reasoning)
        calls = view.parser.stream(view.tools) if view.parser is not None else None
        return _Choice(meta, calls=calls, thinking=thinking)

    def _delta(self, index: int, choice: _Choice, delta: str, finish: JsonObject | None) -> Iterator[bytes]:
        logprobs = self._logprobs(choice)
        thought = ""
        if choice.thinking is not None:
            thought, delta = choice.thinking.feed(delta)
            if finish is not None:
                late_thought, late_text = choice.thinking.finish()
                thought, delta = thought + late_thought, delta + late_text
            if thought:
                yield self._plain(index, {"reasoning_content": thought}, logprobs)
                logprobs = None
        if choice.calls is None:
            if delta:
                yield self._plain(index, {"reasoning_content": None, "content": delta}, logprobs)
                logprobs = None
        else:
            yield from self._extracted(index, choice, choice.calls.feed(delta))
            if finish is not None:
                yield from self._extracted(index, choice, choice.calls.finish(finish["type"]))
        if logprobs is not None and (choice.calls is not None or choice.thinking is not None):
            yield self._plain(index, {"reasoning_content": None}, logprobs)

    def _logprobs(self, choice: _Choice) -> JsonObject | None:
        if not self._view.request.logprobs:
            return None
        since = 0 if self._incremental else choice.logprobs_shown
        known = choice.meta["output_token_logprobs_length"]
        if known <= choice.logprobs_shown:
            return None
        choice.logprobs_shown = known
        return chat_logprobs(choice.meta, since)

    def _extracted(self, index: int, choice: _Choice, extract: Extract) -> Iterator[bytes]:
        choice.extract.problems += extract.problems
        if extract.content:
            yield self._full(index, choice, {"content": extract.content})
        for piece in extract.pieces:
            choice.called = True
            yield self._full(index, choice, {"tool_calls": [_call(self._view, piece, index)]})

    def finish(self) -> Iterator[bytes]:
        """Yield the events after the last step."""
        for index, finish in self._finished.items():
            choice = self._choices[index]
            reason = "tool_calls" if choice.called and finish["type"] == "stop" else finish["type"]
            more = {"finish_reason": reason, "matched_stop": finish.get("matched")} | _refused_calls(choice.extract)
            yield self._plain(index, {"reasoning_content": None}, None, **more)
        if self._include_usage:
            metas = {index: choice.meta for index, choice in sorted(self._choices.items())}
            yield event(self._chunk([]) | {"usage": total_usage(metas, self._view.request.n, self._view.report_cache)})

    def _chunk(self, choices: list[JsonObject]) -> JsonObject:
        first = next(iter(self._choices.values()))
        return {
            "id": first.meta["id"],
            "object": "chat.completion.chunk",
            "created": self._view.created,
            "model": self._view.request.model,
            "choices": choices,
        }

    def _plain(self, index: int, delta: JsonObject, logprobs: JsonObject | None = None, **more: Any) -> bytes:
        """An event in which most null values are left out."""
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": None,
            "matched_stop": None,
        } | more
        body = self._chunk([choice])
        if self._continuous and not more and "role" not in delta:
            body["usage"] = meta_usage(self._choices[index].meta)
        return event(body)

    def _full(self, index: int, choice: _Choice, delta: JsonObject) -> bytes:
        """An event with tool calls, which has every key."""
        whole = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None} | delta
        entry = {"index": index, "delta": whole, "logprobs": None, "finish_reason": None, "matched_stop": None}
        return event(self._chunk([entry]) | {"usage": meta_usage(choice.meta) if self._continuous else None})


class StreamAborted(Exception):
    """Raised when the engine aborts a streaming request with an error status."""

    def __init__(self, finish: JsonObject) -> None:
        super().__init__(finish["message"])
        self.finish = finish

    def event(self) -> bytes:
        """The error event for the client."""
        from http import HTTPStatus

        status = HTTPStatus(self.finish["status_code"])
        return error_event(self.finish["message"] or "Generation aborted.", status.name, status.value)


def is_error(finish: JsonObject) -> bool:
    """Return whether a finish reason is an abort with an error status."""
    return finish["type"] == "abort" and finish.get("status_code") is not None
