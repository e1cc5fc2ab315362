"""The interface between engine and policy: what the model is asked, and its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

JsonObject = dict[str, Any]

LogprobRow = list[Any]
"""A token as sglang's output has it: its log probability, its id, and its text if wanted."""


class FinishReason(TypedDict, total=False):
    """Why a generation ended, as JSON; which keys there are depends on the type."""

    type: str
    matched: int | str | None
    length: int | None
    message: str | None
    status_code: int | None
    err_type: str | None


class MetaInfo(TypedDict, total=False):
    """What an output says about itself; the order of the keys is that of sglang."""

    id: str
    finish_reason: FinishReason | None
    prompt_tokens: int
    weight_version: str
    num_retractions: int
    input_token_logprobs: list[LogprobRow]
    output_token_logprobs: list[LogprobRow]
    input_top_logprobs: list[list[LogprobRow] | None]
    output_top_logprobs: list[list[LogprobRow]]
    input_token_ids_logprobs: list[list[LogprobRow] | None]
    output_token_ids_logprobs: list[list[LogprobRow]]
    output_token_logprobs_length: int
    reasoning_tokens: int
    completion_tokens: int
    cached_tokens: int
    e2e_latency: float


class EngineOutput(TypedDict, total=False):
    """What the engine returns for a request, or yields after each step."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    prompt_token_ids: list[int]
    index: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a policy, before a format writes it."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a generation ended."""

    type: str
    matched: int | str | None = None
    length: int | None = None
    message: str | None = None
    status_code: int | None = None
    err_type: str | None = None

    def body(self) -> FinishReason:
        """Return the JSON object for ``meta_info.finish_reason``."""
        if self.type == "length":
            return {"type": "length", "length": self.length}
        if self.type == "abort":
            return {
                "type": "abort",
                "message": self.message,
                "status_code": self.status_code,
                "err_type": self.err_type,
            }
        return {"type": self.type, "matched": self.matched}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Finish:
        """Read the JSON object."""
        known = {key: value for key, value in body.items() if key in cls.__dataclass_fields__}
        return cls(**known)

    @classmethod
    def aborted(cls, message: str = "Aborted") -> Finish:
        """Return the finish reason of an aborted request, which is not an error."""
        return cls("abort", message=message)


@dataclass(frozen=True, slots=True)
class Step:
    """The output of one decoding step."""

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a policy.

    Usually ``text`` and ``calls``: the engine writes the calls in its format after the text,
    tokenizes, and ends at the end-of-sequence token, a stop string or the token limit. ``steps``
    replays exact decoding steps instead, with ``finish`` as given. ``error`` is raised after
    ``error_after`` steps.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Finish | None = None
    steps: tuple[Step, ...] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    error: Exception | None = None
    error_after: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """What the model is asked: a prompt and its conversation.

    The prompt was rendered from the conversation, or the conversation was read from the prompt.
    """

    prompt: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    rid: str = ""
    sample: int = 0
    seed: int = 0
    step: int = 0
    format: str = "qwen25"

    @property
    def turn(self) -> int:
        """The number of earlier turns of the assistant."""
        return sum(message.get("role") == "assistant" for message in self.messages)

    @property
    def question(self) -> str:
        """The first message of the user."""
        texts = self._user_texts()
        return texts[0] if texts else self.prompt

    @property
    def last_user(self) -> str:
        """The last message of the user."""
        texts = self._user_texts()
        return texts[-1] if texts else self.prompt

    def _user_texts(self) -> list[str]:
        return [_text(message) for message in self.messages if message.get("role") == "user"]

    @property
    def tool_results(self) -> tuple[str, ...]:
        """The tool results since the last turn of the assistant, in order."""
        results: list[str] = []
        for message in reversed(self.messages):
            if message.get("role") != "tool":
                break
            results.append(_text(message))
        return tuple(reversed(results))

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(str((tool.get("function") or tool).get("name", "")) for tool in self.tools)


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    texts = [part.get("text", "") if isinstance(part, Mapping) else part for part in content]
    return "".join(map(str, texts))


class Policy(Protocol):
    """The behaviour of a model: the same reply to the same question."""

    def reply(self, ask: Ask) -> Reply: ...
