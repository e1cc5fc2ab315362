"""The answers of the chat route, whole and streamed, made from the engine's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .calls import ArrayParser, ArrayStream, CallPiece, Extract, OwnParser, OwnStream
from .completions import AnswerStream, AnswerView, chat_logprobs, event, finish_of
from .protocol import EngineOutput, FinishReason, JsonObject, MetaInfo
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

    def _choice(self, index: int, output: EngineOutput) -> JsonObject:
        meta = output["meta_info"]
        finish = finish_of(output)
        thought, text = self._separated(output["text"])
        extract = self._extract(text, finish["type"])

        calls: list[JsonObject] = []
        if extract is not None:
            text = extract.content
            calls = [self.written(piece, index) for piece in extract.pieces]

        ended_by_calls = bool(calls) and finish["type"] == "stop"
        choice: JsonObject = {
            "index": index,
            "message": {
                "role": "assistant",
                "content": text or "",
                "reasoning_content": thought or None,
                "tool_calls": calls or None,
            },
            "logprobs": chat_logprobs(meta) if self.request.logprobs else None,
            "finish_reason": "tool_calls" if ended_by_calls else finish["type"],
            "matched_stop": None if ended_by_calls else finish.get("matched"),
        }
        if self.request.return_prompt_token_ids:
            choice["prompt_token_ids"] = output.get("prompt_token_ids")
        if self.request.return_token_ids:
            choice["token_ids"] = output["output_ids"]
        if self.request.return_meta_info:
            choice["meta_info"] = meta
        return choice | _refused_calls(extract)

    def _separated(self, text: str) -> tuple[str, str]:
        """Return the thinking and the rest of a text."""
        if self.reasoning is None:
            return "", text
        return self.reasoning.whole(text, self.thinks)

    def _extract(self, text: str, reason: str) -> Extract | None:
        """Return the calls in a text; None if there are none, or if nothing looks for them."""
        if self.parser is None:
            return None
        return self.parser.whole(text, self.tools, reason)

    def written(self, piece: CallPiece, choice: int) -> JsonObject:
        """Return a call, or a part of one, as the answer has it."""
        return {
            "id": self.call_id(piece, choice) if piece.name else None,
            "index": piece.index,
            "type": "function",
            "function": {"name": piece.name, "arguments": piece.arguments},
        }


def _refused_calls(extract: Extract | None) -> JsonObject:
    """Return the refused calls under a key that sglang does not have.

    Without it they would vanish silently.
    """
    if extract is None:
        return {}
    refused = [problem.as_dict() for problem in extract.problems if problem.severity == "refused"]
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
        self._finished: dict[int, FinishReason] = {}

    def _step(
        self, index: int, output: EngineOutput, delta: str, *, first: bool
    ) -> Iterator[bytes]:
        finish = output["meta_info"]["finish_reason"]
        if finish is not None:
            self._finished[index] = finish
        if first:
            self._choices[index] = self._begun_choice()
            beginning = {"reasoning_content": None, "role": "assistant", "content": ""}
            yield self._plain(index, beginning)
        yield from self._delta(index, self._choices[index], delta, finish)

    def _begun_choice(self) -> _Choice:
        """Return the state of a choice of which nothing is known yet."""
        view = self._view
        choice = _Choice()
        if view.reasoning is not None:
            choice.thinking = view.reasoning.stream(view.thinks, view.request.stream_reasoning)
        if view.parser is not None:
            choice.calls = view.parser.stream(view.tools)
        return choice

    def _delta(
        self, index: int, choice: _Choice, delta: str, finish: FinishReason | None
    ) -> Iterator[bytes]:
        """Yield the events of some new text: its thinking, its content and its calls.

        The log probabilities go with the first event without a call.
        """
        logprobs = self._logprobs(choice, self._metas[index])

        if choice.thinking is not None:
            thought, delta = _fed(choice.thinking, delta, last=finish is not None)
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

        is_parsed = choice.calls is not None or choice.thinking is not None
        if logprobs is not None and is_parsed:
            yield self._plain(index, {"reasoning_content": None}, logprobs)

    def _logprobs(self, choice: _Choice, meta: MetaInfo) -> JsonObject | None:
        """Return the log probabilities that were not shown yet, if the request wants them."""
        if not self._view.request.logprobs:
            return None
        since = choice.logprobs_shown
        known = meta["output_token_logprobs_length"]
        if known <= since:
            return None
        choice.logprobs_shown = known
        return chat_logprobs(meta, since)

    def _extracted(self, index: int, choice: _Choice, extract: Extract) -> Iterator[bytes]:
        """Yield the events of what a parser extracted; its problems are kept for the end."""
        choice.extract.problems += extract.problems
        if extract.content:
            yield self._full(index, {"content": extract.content})
        for piece in extract.pieces:
            choice.called = True
            yield self._full(index, {"tool_calls": [self._view.written(piece, index)]})

    def finish(self) -> Iterator[bytes]:
        for index, finish in self._finished.items():
            choice = self._choices[index]
            ended_by_calls = choice.called and finish["type"] == "stop"
            ending = {
                "finish_reason": "tool_calls" if ended_by_calls else finish["type"],
                "matched_stop": finish.get("matched"),
                **_refused_calls(choice.extract),
            }
            yield self._plain(index, {"reasoning_content": None}, None, **ending)
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
            **more,
        }
        body = self._chunk([choice])
        if self._continuous and not more and "role" not in delta:
            body["usage"] = self._usage_so_far(index)
        return event(body)

    def _full(self, index: int, delta: JsonObject) -> bytes:
        """An event with tool calls, which has every key."""
        every_key = {
            "role": None,
            "content": None,
            "reasoning_content": None,
            "tool_calls": None,
            **delta,
        }
        choice = {
            "index": index,
            "delta": every_key,
            "logprobs": None,
            "finish_reason": None,
            "matched_stop": None,
        }
        return event(self._chunk([choice]) | {"usage": self._usage_so_far(index)})


def _fed(thinking: ThoughtStream, delta: str, *, last: bool) -> tuple[str, str]:
    """Return the thinking and the rest that some new text adds; after the last, all of it."""
    thought, rest = thinking.feed(delta)
    if last:
        late_thought, late_rest = thinking.finish()
        thought += late_thought
        rest += late_rest
    return thought, rest
