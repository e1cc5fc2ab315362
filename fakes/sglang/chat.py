"""The answers of the chat route, whole and streamed, made from the engine's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .calls import ArrayParser, ArrayStream, CallPiece, Extract, OwnParser, OwnStream
from .completions import (
    AnswerStream,
    AnswerView,
    chat_logprobs,
    event,
)
from .protocol import JsonObject
from .reasoning import Harmony, Reasoning, ThoughtStream
from .schema import ChatCompletionRequest

CallId = Callable[[CallPiece, int], str]
"""Makes the id of a call, given its first piece and its choice."""


@dataclass(frozen=True)
class ChatView(AnswerView):
    kind = "chat.completion"
    request: ChatCompletionRequest
    call_id: CallId
    parser: OwnParser | ArrayParser | None = None
    reasoning: Reasoning | Harmony | None = None
    thinks: bool = False

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        return [tool.model_dump() for tool in self.request.tools or ()]

    def stream(self) -> ChatStream:
        return ChatStream(self)

    def _choice(self, index: int, output: JsonObject) -> JsonObject:
        meta = output["meta_info"]
        finish = meta["finish_reason"]
        text, thought = output["text"], ""
        if self.reasoning is not None:
            thought, text = self.reasoning.whole(text, self.thinks)
        extract = (
            self.parser.whole(text, self.tools, finish["type"]) if self.parser is not None else None
        )
        calls: list[JsonObject] | None = None
        reason, matched = finish["type"], finish.get("matched")
        if extract is not None:
            text = extract.content
            calls = [self.written(piece, index) for piece in extract.pieces] or None
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
            "logprobs": chat_logprobs(meta) if self.request.logprobs else None,
            "finish_reason": reason,
            "matched_stop": matched,
        }
        if self.request.return_prompt_token_ids:
            choice["prompt_token_ids"] = output.get("prompt_token_ids")
        if self.request.return_token_ids:
            choice["token_ids"] = output["output_ids"]
        if self.request.return_meta_info:
            choice["meta_info"] = meta
        return choice | _refused_calls(extract)

    def written(self, piece: CallPiece, choice: int) -> JsonObject:
        """Return a call, or a part of one, as the answer has it."""
        return {
            "id": self.call_id(piece, choice) if piece.name else None,
            "index": piece.index,
            "type": "function",
            "function": {"name": piece.name, "arguments": piece.arguments},
        }


def _refused_calls(extract: Extract | None) -> JsonObject:
    """The refused calls, under a key that sglang does not have, so that they do not vanish
    silently."""
    refused = (
        [problem.as_dict() for problem in extract.problems if problem.severity == "refused"]
        if extract
        else []
    )
    return {"problems": refused} if refused else {}


@dataclass(slots=True)
class _Choice:
    """The state of one choice while it streams."""

    logprobs_shown: int = 0
    calls: OwnStream | ArrayStream | None = None
    thinking: ThoughtStream | None = None
    called: bool = False
    extract: Extract = field(default_factory=Extract)


class ChatStream(AnswerStream):
    """Turns the engine's stream into the events of the chat route."""

    kind = "chat.completion.chunk"
    _view: ChatView

    def __init__(self, view: ChatView) -> None:
        super().__init__(view)
        self._choices: dict[int, _Choice] = {}
        self._finished: dict[int, JsonObject] = {}

    def _step(self, index: int, output: JsonObject, delta: str, *, first: bool) -> Iterator[bytes]:
        finish = output["meta_info"]["finish_reason"]
        if finish is not None:
            self._finished[index] = finish
        if first:
            view = self._view
            self._choices[index] = choice = _Choice()
            if view.reasoning is not None:
                choice.thinking = view.reasoning.stream(view.thinks, view.request.stream_reasoning)
            if view.parser is not None:
                choice.calls = view.parser.stream(view.tools)
            yield self._plain(
                index, {"reasoning_content": None, "role": "assistant", "content": ""}
            )
        yield from self._delta(index, self._choices[index], delta, finish)

    def _delta(
        self, index: int, choice: _Choice, delta: str, finish: JsonObject | None
    ) -> Iterator[bytes]:
        logprobs = self._logprobs(choice, self._metas[index])
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

    def _logprobs(self, choice: _Choice, meta: JsonObject) -> JsonObject | None:
        if not self._view.request.logprobs:
            return None
        since = choice.logprobs_shown
        known = meta["output_token_logprobs_length"]
        if known <= since:
            return None
        choice.logprobs_shown = known
        return chat_logprobs(meta, since)

    def _extracted(self, index: int, choice: _Choice, extract: Extract) -> Iterator[bytes]:
        choice.extract.problems += extract.problems
        if extract.content:
            yield self._full(index, {"content": extract.content})
        for piece in extract.pieces:
            choice.called = True
            yield self._full(index, {"tool_calls": [self._view.written(piece, index)]})

    def finish(self) -> Iterator[bytes]:
        for index, finish in self._finished.items():
            choice = self._choices[index]
            reason = "tool_calls" if choice.called and finish["type"] == "stop" else finish["type"]
            more = {
                "finish_reason": reason,
                "matched_stop": finish.get("matched"),
            } | _refused_calls(choice.extract)
            yield self._plain(index, {"reasoning_content": None}, None, **more)
        if self._include_usage:
            yield event(self._chunk([]) | {"usage": self._total_usage()})

    def _plain(
        self, index: int, delta: JsonObject, logprobs: JsonObject | None = None, **more: Any
    ) -> bytes:
        """An event in which most null values are left out."""
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": None,
            "matched_stop": None,
        }
        body = self._chunk([choice | more])
        if self._continuous and not more and "role" not in delta:
            body["usage"] = self._usage_so_far(index)
        return event(body)

    def _full(self, index: int, delta: JsonObject) -> bytes:
        """An event with tool calls, which has every key."""
        whole = {
            "role": None,
            "content": None,
            "reasoning_content": None,
            "tool_calls": None,
        } | delta
        entry = {
            "index": index,
            "delta": whole,
            "logprobs": None,
            "finish_reason": None,
            "matched_stop": None,
        }
        return event(self._chunk([entry]) | {"usage": self._usage_so_far(index)})
