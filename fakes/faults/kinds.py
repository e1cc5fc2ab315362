"""The kinds of faults.

To add one, define it here: reading, explaining, striking and hunting follow from the class. A fault
that changes what a sandbox answers (a ``ContentFault``) also needs a branch in
``fakes/sandbox/body.py``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from ..fields import Drawn, NotShrunk
from .action import Action, BodyDamage, ContentFault, FaultSite, Phase, Ping, StrikeNote, Wait
from .chance import Draw
from .duration import Distribution, Seconds

_STATUSES = (
    *(200, 201, 202, 204),
    *(301, 307),
    *(400, 401, 404, 408, 413, 422, 425, 429, 429),
    *(500, 502, 503, 503, 504, 599),
)
"""What a hunt draws; 429 and 503 twice as often, because clients repeat these."""
_BODIES: tuple[Any, ...] = (
    None,
    "",
    "busy",
    "<html>502</html>",
    "0",
    "null",
    '{"status": "Success"}',
    "été 🚀\n",
    {},
    [],
    {"detail": "no"},
)
_WAITS = (None, None, 0, 0.5, 3, 12, "soon", "Fri, 31 Dec 1999 23:59:59 GMT")
_AMOUNTS = (0.0, 0.01, 0.3, 0.5, 0.9, 1.0, 40.0)
_TYPES = ("text/html", "application/json; charset=latin-1", "x")
_FAULT = NotShrunk("it is the fault itself")

_LONG_WAIT = 5.0
"""Seconds of a Retry-After from which on a hunt does not expect the next attempt (chosen)."""
_HALF = 0.5
"""How much of a body is sent before a fault in its middle."""


class Status(Action):
    """Answer with an HTTP status of your choice, as a gateway in front of the sandbox would."""

    kind = "status"
    phases = ("before", "during", "after")
    examples = (
        {"status": 503},
        {"status": 502},
        {"status": 429},
        {"status": 429, "retry_after": 2},
        {"status": 500},
        {"status": 404, "body": "no such route"},
        {"status": 202, "body": "queued"},
        {"status": 200, "body": "<html>busy</html>"},
        {"status": 504},
    )

    status: Annotated[int, Drawn(*_STATUSES), NotShrunk("a status is a name, not an amount")] = (
        Field(ge=200, le=599)
    )
    """The HTTP status code."""
    headers: Annotated[
        dict[str, str], Drawn({"Connection": "close"}, {"Retry-After": "2"}, {"X-Note": "a"})
    ] = Field({})
    """Additional headers of the answer."""
    body: Annotated[str | dict[str, Any] | list[Any] | None, Drawn(*_BODIES)] = None
    """The body: a text, or data that is sent as JSON."""
    retry_after: Annotated[float | str | None, Drawn(*_WAITS)] = None
    """The value of the Retry-After header: seconds or an HTTP date."""
    content_type: Annotated[str | None, Drawn(None, *_TYPES)] = None
    """The Content-Type header, if it is not the one that fits the body."""

    def is_transient(self, phase: Phase, first_attempts: int | None, may_have_run: bool) -> bool:
        if self.headers or self.asked_wait >= _LONG_WAIT:
            return False
        if self.refuses:
            return phase == "before" or may_have_run
        return self.status in (502, 504) and first_attempts is not None and may_have_run

    @property
    def refuses(self) -> bool:
        """Does it say that the request was not accepted for now?"""
        return self.status in (429, 503)

    @property
    def asked_wait(self) -> float:
        """Seconds that a client is asked to wait; a date or any other text counts as forever."""
        if isinstance(self.retry_after, str):
            return math.inf
        return float(self.retry_after or 0.0)

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.respond(self)


class Delay(Action):
    """Wait, then continue as if nothing had happened."""

    kind = "delay"
    phases = ("before", "connect", "during", "after", "body")
    final = False
    adds = True
    examples = ({"delay": 0.317},)

    delay: Distribution
    """How long to wait: a duration or a distribution."""

    @property
    def longest_delay(self) -> float:
        return self.delay.longest

    @property
    def lasts(self) -> float:
        return self.delay.longest

    def is_harmless(self, phase: Phase) -> bool:
        return phase != "during"

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.sleep(self.delay.sample(draw))

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.pause += self.delay.sample(draw)


class Degrade(Action):
    """Get slower over time: an extra delay that grows from ``start`` to ``end`` within ``over``."""

    kind = "degrade"
    phases = ("before", "during", "after")
    final = False
    adds = True

    start: Seconds = 0.0
    """The delay at the beginning."""
    end: Seconds
    """The delay at the end, and from then on."""
    over: Seconds
    """How long the delay takes to grow, from when the faults were set."""

    @property
    def lasts(self) -> float:
        return max(self.start, self.end)

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        share = 1.0
        if self.over > 0:
            share = min(1.0, max(0.0, site.active_for() / self.over))
        return site.sleep(self.start + (self.end - self.start) * share)


class Hang(Action):
    """Never answer; with ``seconds``, close without an answer after that time."""

    kind = "hang"
    phases = ("before", "connect", "during", "after", "body")
    scalar = "seconds"
    examples = ("hang",)

    seconds: Seconds | None = None
    """When to close the connection; never by default."""

    def is_transient(self, phase: Phase, first_attempts: int | None, may_have_run: bool) -> bool:
        return first_attempts == 1 and may_have_run and self.seconds is None and phase != "connect"

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.hang(self.seconds)

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.cut = _HALF
        damage.ending = "hang"
        damage.ending_seconds = self.seconds


class Reset(Action):
    """Reset the TCP connection (RST); in the body, after ``at`` of it has been sent."""

    kind = "reset"
    phases = ("before", "connect", "during", "after", "body")
    passes = True
    examples = ("reset",)

    at: Annotated[float, Drawn(*_AMOUNTS)] = Field(default=0.5, ge=0)
    """In phase ``body``, how much to send first: a share below 1, or a number of bytes."""

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.reset()

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.cut = self.at
        damage.ending = "reset"


class Close(Action):
    """Close the TCP connection (FIN) without an answer."""

    kind = "close"
    phases = ("before", "connect", "during", "after")
    passes = True

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.close()


class Truncate(Action):
    """Announce the whole body but send only a part: a share below 1, or a number of bytes from 1
    on."""

    kind = "truncate"
    phases = ("body",)
    scalar = "at"
    examples = ({"truncate": 0.5},)

    at: Annotated[float, Drawn(*_AMOUNTS)] = Field(default=0.5, ge=0)
    """How much of the body to send: a share below 1, or a number of bytes."""
    then: Literal["close", "reset", "hang"] = "close"
    """What to do with the connection after that: ``close``, ``reset`` or ``hang``."""

    def is_transient(self, phase: Phase, first_attempts: int | None, may_have_run: bool) -> bool:
        is_visibly_cut = self.then == "close" and 0 < self.at < 1
        return is_visibly_cut and first_attempts is not None and may_have_run

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.cut = self.at
        damage.ending = self.then


class Drip(Action):
    """Send the body a few bytes at a time."""

    kind = "drip"
    phases = ("body",)
    final = False
    examples = ({"drip": {"bytes": 1, "every": 1.019}}, {"drip": {"bytes": 100, "every": 1.019}})

    bytes: int = Field(default=1, ge=1)
    """How many bytes to send at a time."""
    every: Seconds = 0.1
    """The pause between two pieces."""

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.drip = self.bytes, self.every


class MalformedAnswer(Action):
    """Break the HTTP or the JSON of the answer."""

    kind = "malformed"
    phases = ("body",)
    scalar = "what"
    examples = ({"malformed": "json"},)

    what: Literal["chunk", "json", "header", "status_line"] = "chunk"
    """Which part to break: ``chunk``, ``json``, ``header`` or ``status_line``."""

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.rewrite = self._rewritten

    def _rewritten(self, head: bytes, body: bytes) -> bytes:
        match self.what:
            case "status_line":
                return b"HTTP/1.1 OK 200\r\n" + head.partition(b"\r\n")[2] + body
            case "header":
                return head[:-2] + b"this line has no colon\r\n\r\n" + body
            case "json":
                return head + body[:-1] + b","
            case "chunk":
                return _with_bad_chunk(head, body)


def _with_bad_chunk(head: bytes, body: bytes) -> bytes:
    """Send the body in two chunks, the second with a size that is not a number."""
    lines = head.split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"content-length")]
    opening = b"\r\n".join([*kept[:-2], b"transfer-encoding: chunked", b"", b""])

    half = len(body) // 2
    first_chunk = b"%x\r\n%b\r\n" % (half, body[:half])
    second_chunk = b"zz\r\n%b\r\n" % body[half:]
    return opening + first_chunk + second_chunk + b"0\r\n\r\n"


class ContentType(Action):
    """Send the right body with the wrong content type."""

    kind = "content_type"
    phases = ("body",)
    final = False
    examples = ({"content_type": "text/html"},)

    content_type: Annotated[
        str, StringConstraints(min_length=1, pattern=r"^[\x20-\x7e]+$"), Drawn(*_TYPES), _FAULT
    ] = "text/html"
    """The content type to send."""

    def is_harmless(self, phase: Phase) -> bool:
        return True

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.content_type = self.content_type


class SandboxError(ContentFault):
    """Answer 200 with status SandboxError, as the real server does when it fails itself."""

    kind = "sandbox_error"
    phases = ("before", "during", "after")
    scalar = "message"
    examples = ("sandbox_error",)

    message: str = (
        "exception on running command python: [Errno 11] Resource temporarily unavailable | None"
    )
    """The message of the answer."""

    @property
    def lies(self) -> bool:
        return False


class Timeout(ContentFault):
    """Answer TimeLimitExceeded: at once (before), after run_timeout (during), or for a finished
    run (after)."""

    kind = "timeout"
    phases = ("during", "before", "after")

    stdout: str = ""
    """What the program printed before it was stopped."""


_CUT_KEEPS = 10
"""Characters (chosen: fewer than nearly every program prints)."""


class Output(ContentFault):
    """Change what the program printed."""

    kind = "output"
    phases = ("after",)
    scalar = "what"
    final = False
    adds = True
    changes_answer = True
    examples = (
        {"output": "not_utf8"},
        {"output": {"what": "null", "stream": "both"}},
        {"output": {"what": "null", "stream": "stderr"}},
    )

    what: Annotated[Literal["lost", "null", "cut", "huge", "not_utf8", "decode_error"], _FAULT]
    """What to do with it: ``lost``, ``null``, ``cut``, ``huge``, ``not_utf8`` or
    ``decode_error``."""
    size: int = Field(default=1_000_000, ge=0, le=20_000_000)
    """Characters kept by ``cut``, added by ``huge``."""
    stream: Literal["stdout", "stderr", "both"] = "stdout"
    """Which output to change: ``stdout``, ``stderr`` or ``both``."""

    def is_harmless(self, phase: Phase) -> bool:
        return self.what in ("lost", "null", "cut") and self.stream == "stderr"

    @property
    def lies(self) -> bool:
        return self.stream != "stderr" and self.what not in ("huge", "not_utf8")

    def noted(self) -> StrikeNote:
        noted: StrikeNote = {"what": self.what, "stream": self.stream}
        if self.what in ("huge", "cut"):
            noted["size"] = self.size
        return noted

    @model_validator(mode="before")
    @classmethod
    def _cut_keeps_little(cls, value: Any) -> Any:
        """Let ``cut`` keep ten characters by default.

        One that keeps a million would rarely be noticed.
        """
        given = value
        if isinstance(value, dict) and set(value) == {cls.kind}:
            given = value[cls.kind]
        if isinstance(given, str):
            given = {"what": given}
        if isinstance(given, dict) and given.get("what") == "cut":
            return {"size": _CUT_KEEPS, **given}
        return value


class Crash(Action):
    """Take the server down: connections are reset, the port is closed; it comes back after
    ``restart_after``."""

    kind = "crash"
    phases = ("before", "connect", "during", "after", "body")
    scalar = "restart_after"

    restart_after: Seconds | None = None
    """When the server comes back; never by default."""

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.crash(self.restart_after)

    def damage_body(self, damage: BodyDamage, draw: Draw) -> None:
        damage.cut = _HALF
        damage.ending = "crash"
        damage.ending_seconds = self.restart_after


class Wedge(Action):
    """From now on the server accepts requests and never answers, for ``seconds`` or until it is
    restarted."""

    kind = "wedge"
    phases = ("before", "connect")
    scalar = "seconds"
    final = False

    ping: Ping = "alive"
    """Whether pings are still answered: ``alive`` or ``dead``."""
    seconds: Seconds | None = None
    """How long the server stays wedged; until it is restarted by default."""

    @property
    def lasts(self) -> float | None:
        return self.seconds

    def strike(self, site: FaultSite, draw: Draw) -> Wait:
        return site.wedge(self.ping, self.seconds)
