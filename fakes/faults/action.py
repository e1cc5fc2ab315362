"""What a fault does: one model per kind, each knowing the phases in which it can strike."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from sfusion.fakes.faults.duration import Distribution, Seconds

Phase = Literal["connect", "before", "during", "after", "body"]
PHASES: tuple[Phase, ...] = ("connect", "before", "during", "after", "body")


class Action(BaseModel):
    """What all kinds share; the first of ``phases`` is where a kind strikes when the rule names none."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True)

    kind: ClassVar[str]
    phases: ClassVar[tuple[Phase, ...]]
    final: ClassVar[bool] = True
    """Nothing after it in the request's life happens any more."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """``{hang: true}`` and ``{truncate: 0.5}`` are short for the nested form."""
        if isinstance(value, dict) and set(value) == {cls.kind} and cls.kind not in cls.model_fields:
            inner = value[cls.kind]
            if inner is True:
                return {}
            if isinstance(inner, dict):
                return inner
            return cls.from_scalar(inner)
        return value

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """The nested form of a kind written with a single value."""
        raise ValueError(f"{cls.kind} takes true or a mapping, got {value!r}")


class Status(Action):
    """Answer with an HTTP status of your choice, as a gateway in front of the sandbox would."""

    kind = "status"
    phases = ("before", "during", "after")

    status: int = Field(ge=200, le=599)
    headers: dict[str, str] = {}
    body: str | dict[str, Any] | list[Any] | None = None
    retry_after: float | str | None = None
    content_type: str | None = None


class Delay(Action):
    """Wait, then go on as if nothing had happened."""

    kind = "delay"
    phases = ("before", "connect", "during", "after", "body")
    final = False

    delay: Distribution


class Degrade(Action):
    """Become slower and slower: an extra delay that grows from ``start`` to ``end`` while ``over`` passes."""

    kind = "degrade"
    phases = ("before", "during", "after")
    final = False

    start: Seconds = 0.0
    end: Seconds
    over: Seconds

    def at(self, now: float) -> float:
        """The delay when the faults have been active for ``now`` seconds."""
        share = 1.0 if self.over <= 0 else min(1.0, max(0.0, now / self.over))
        return self.start + (self.end - self.start) * share


class Hang(Action):
    """Never answer; with ``seconds``, close without an answer after that time."""

    kind = "hang"
    phases = ("before", "connect", "during", "after", "body")

    seconds: Seconds | None = None

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``hang: 30s``."""
        return {"seconds": value}


class Reset(Action):
    """Reset the TCP connection (RST); in the body, after ``at`` of it has been sent."""

    kind = "reset"
    phases = ("before", "connect", "during", "after", "body")

    at: float = Field(default=0.5, ge=0)


class Close(Action):
    """Close the TCP connection (FIN) without an answer."""

    kind = "close"
    phases = ("before", "connect", "during", "after")


class Truncate(Action):
    """Promise the whole body, send a part: a share below 1, or a number of bytes from 1 on; then end."""

    kind = "truncate"
    phases = ("body",)

    at: float = Field(default=0.5, ge=0)
    then: Literal["close", "reset", "hang"] = "close"

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``truncate: 0.5`` or ``truncate: 100``."""
        return {"at": value}

    def cut(self, length: int) -> int:
        """How many of ``length`` bytes are sent."""
        return part(self.at, length)


class Drip(Action):
    """Send the body a few bytes at a time."""

    kind = "drip"
    phases = ("body",)
    final = False

    bytes: int = Field(default=1, ge=1)
    every: Seconds = 0.1


class Malformed(Action):
    """Break the HTTP or the JSON of the answer."""

    kind = "malformed"
    phases = ("body",)

    what: Literal["chunk", "json", "header", "status_line"] = "chunk"

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``malformed: chunk``."""
        return {"what": value}


class ContentType(Action):
    """Send the right body under the wrong content type."""

    kind = "content_type"
    phases = ("body",)
    final = False

    content_type: Annotated[str, StringConstraints(min_length=1, pattern=r"^[\x20-\x7e]+$")] = "text/html"


class SandboxError(Action):
    """Answer 200 with status SandboxError, as the real server does when it fails itself."""

    kind = "sandbox_error"
    phases = ("before", "during", "after")

    message: str = "exception on running command python: [Errno 11] Resource temporarily unavailable | None"

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``sandbox_error: some text``."""
        return {"message": value}


class Timeout(Action):
    """Answer TimeLimitExceeded: at once (before), after run_timeout (during), or for a finished run."""

    kind = "timeout"
    phases = ("during", "before", "after")

    stdout: str = ""


class Output(Action):
    """Spoil what the program printed."""

    kind = "output"
    phases = ("after",)
    final = False

    what: Literal["lost", "null", "cut", "huge", "not_utf8", "decode_error"]
    size: int = Field(default=1_000_000, ge=0)
    """Characters kept by ``cut``, added by ``huge``."""
    stream: Literal["stdout", "stderr", "both"] = "stdout"

    @model_validator(mode="before")
    @classmethod
    def _cut_keeps_little(cls, value: Any) -> Any:
        return _with_small_cut(value)

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``output: lost``."""
        return _with_small_cut({"what": value})


class Crash(Action):
    """The server dies: connections are reset, the port is closed; ``restart_after`` it comes back."""

    kind = "crash"
    phases = ("before", "connect", "during", "after", "body")

    restart_after: Seconds | None = None

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``crash: 5s`` restarts after five seconds."""
        return {"restart_after": value}


class Wedge(Action):
    """From now on the server accepts and never answers, until ``seconds`` have passed or it is restarted."""

    kind = "wedge"
    phases = ("before", "connect")

    ping: Literal["alive", "dead"] = "alive"
    seconds: Seconds | None = None

    @classmethod
    def from_scalar(cls, value: Any) -> Any:
        """``wedge: 60s``."""
        return {"seconds": value}


def _with_small_cut(value: Any) -> Any:
    """A cut that keeps a million characters would rarely be seen: unless said otherwise it keeps ten."""
    if isinstance(value, dict) and value.get("what") == "cut" and "size" not in value:
        return {**value, "size": 10}
    return value


def part(at: float, length: int) -> int:
    """A share below 1 of ``length``, or a number of bytes from 1 on, never more than there are."""
    return min(length, int(at * length) if at < 1 else int(at))


KINDS: dict[str, type[Action]] = {
    cls.kind: cls
    for cls in (
        Status,
        Delay,
        Degrade,
        Hang,
        Reset,
        Close,
        Truncate,
        Drip,
        Malformed,
        ContentType,
        SandboxError,
        Timeout,
        Output,
        Crash,
        Wedge,
    )
}
"""Every kind by the key it is written with."""
