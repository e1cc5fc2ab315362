"""One request's life, phase by phase, with the faults that strike it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from sfusion.fakes.errors import BrokenStream
from sfusion.fakes.faults import (
    Action,
    Attempt,
    Close,
    ContentType,
    Crash,
    Degrade,
    Delay,
    Drip,
    Fate,
    Hang,
    Malformed,
    Output,
    Phase,
    Reset,
    Status,
    Strike,
    Truncate,
    Wedge,
)
from sfusion.fakes.wire.app import Request, Subject
from sfusion.fakes.wire.connection import Connection
from sfusion.fakes.wire.delivery import Delivery, Ending, Spoilage
from sfusion.fakes.wire.message import Answer, dump_json

if TYPE_CHECKING:
    from sfusion.fakes.wire.server import WireServer

Turn = Literal["go on", "answer", "over"]
Ran = Literal["no", "began", "ended"]


@dataclass(frozen=True, slots=True)
class Words:
    """How the journal speaks of the work that is done for a request."""

    started: str = "started"
    finished: str = "finished"
    ran: Mapping[Ran, str] = field(default_factory=lambda: {"no": "no", "began": "began", "ended": "ended"})
    """How much of the code has run, as far as it is known."""


class Exchange:
    """A request for which something may go wrong, or that the ledger follows."""

    __slots__ = (
        "_answer",
        "_begun",
        "_connection",
        "_delivery",
        "_failed",
        "_fate",
        "_over",
        "_ran",
        "_release",
        "_request",
        "_server",
        "attempt",
        "retry_after",
        "subject",
    )

    def __init__(
        self,
        server: WireServer,
        connection: Connection,
        request: Request,
        subject: Subject,
        attempt: int,
        delivery: Delivery,
    ) -> None:
        self._server = server
        self._connection = connection
        self._request = request
        self.subject = subject
        self.attempt = attempt
        self.retry_after: str | None = None
        """How long the answer asks the client to wait, if it does."""
        self._delivery = delivery
        self._fate: Fate | None = None
        self._answer: Answer | None = None
        self._ran: Ran = "no"
        self._failed = False
        self._over = False
        self._release: Callable[[], None] | None = None
        self._begun: asyncio.Event | None = None

    # -- what the app tells --

    def started(self) -> None:
        """The code begins to run."""
        if not self.subject.work:
            return
        self._ran = "began"
        self._server.ledger.start(self.subject.call)
        if self._begun is not None:
            self._begun.set()
        if self._server.journal is not None:
            self.note(self._server.words.started)

    def finished(self) -> None:
        """The code ran to its end."""
        if not self.subject.work:
            return
        self._ran = "ended"
        self._server.ledger.finish(self.subject.call, completed=True)
        if self._server.journal is not None:
            self.note(self._server.words.finished)

    def failed(self, event: str, **more: Any) -> None:
        """The work came to nothing: there is no result, and nothing after it."""
        self._failed = True
        if self._ran == "began":
            self._server.ledger.finish(self.subject.call, completed=False)
        self.note(event, **more)

    # -- the life --

    async def live(self) -> int:
        """Go through all phases; gives the status that was sent, 0 for none."""
        try:
            return await self._live()
        finally:
            self._over = True
            if self._release is not None:
                self._release()

    async def _live(self) -> int:
        server = self._server
        plan = server.plan
        if plan.rules:
            subject, request = self.subject, self._request
            self._fate = plan.fate(
                Attempt(
                    call=subject.call,
                    attempt=self.attempt,
                    path=request.path,
                    method=request.method,
                    work=subject.work,
                    language=subject.language,
                    code=subject.code,
                    in_flight=max(1, server.ledger.in_flight),
                )
            )
        if server.wedged_by is not None and not await self._wedged():
            return 0
        if self._fate is None:
            answer = await self.execute()
            self.retry_after = asked_to_wait(answer)
            await self._delivery.send(answer)
            return answer.status
        turn = await self._strike("before")
        if turn == "go on":
            if plan.concerns("during"):
                turn = await self._execute_under_fire()
            else:
                self._answer = await self.execute()
            # What was refused without running anything has no "after execution", nor has what came to nothing.
            if turn == "go on" and not self._failed and (self._ran != "no" or not self.subject.work):
                turn = await self._strike("after")
        if turn == "over" or self._answer is None:
            return 0
        return await self._deliver(self._answer)

    async def execute(self) -> Answer:
        """Let the app do its work."""
        app = self._server.app
        try:
            answer = await app.answer(self._request, self)
            if answer.release is not None:
                if self._over:
                    answer.release()
                self._release = answer.release
            return answer
        except Exception as error:  # a bug in a fake must look like a bug in the real server
            self._server.log_failure(error)
            return app.failure(error)
        finally:
            if self._ran == "began" and not self._failed:
                self._server.ledger.finish(self.subject.call, completed=False)
                self.note("broken off")

    async def _execute_under_fire(self) -> Turn:
        """Execute with rules of phase ``during`` in force: they strike once the code has begun to run."""
        self._begun = asyncio.Event()
        run = self._server.keep(self.execute())
        begun = asyncio.ensure_future(self._begun.wait())
        try:
            await asyncio.wait({run, begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
        if self._begun.is_set():
            # Whatever happens to the answer, the run goes on: nobody tells the real server to stop it.
            turn = await self._strike("during")
            if turn != "go on":
                return turn
        self._answer = await run
        return "go on"

    async def _strike(self, phase: Phase) -> Turn:
        if self._fate is None:
            return "go on"
        turn: Turn = "go on"
        for strike in self._fate.at(phase, self._server.now()):
            turn = await self._apply(strike)
            if turn == "over":
                return turn
        return turn

    async def _apply(self, strike: Strike) -> Turn:
        action, phase = strike.action, strike.phase
        self.struck(strike.rule, phase, action.kind)
        match action:
            case Delay():
                await asyncio.sleep(action.delay.sample(strike.draw))
                return "answer" if self._answer is not None and phase != "after" else "go on"
            case Degrade():
                await asyncio.sleep(action.at(self._server.now() - self._server.plan.started))
                return "go on"
            case Status():
                self._answer = status_answer(action)
                return "answer"
            case Hang() | Reset() | Close() | Crash():
                await self._end(action)
                return "over"
            case Wedge():
                self._server.wedge(ping=action.ping, seconds=action.seconds, rule=strike.rule)
                return "go on" if await self._wedged(noted=True) else "over"
            case _:
                return await self._spoil(action, phase)

    async def _spoil(self, action: Action, phase: Phase) -> Turn:
        """A fault of content: only the app knows what the content means."""
        if isinstance(action, Output) and self._answer is not None and self._answer.stream is not None:
            try:
                self._answer = await self._answer.whole()
            except BrokenStream as error:
                self._answer = self._server.app.failure(error)
                return "answer"
        self._answer, takes = self._server.app.spoil(self._request, self._answer, action)
        if phase == "during" and takes:
            await asyncio.sleep(takes)
        return "go on" if phase == "after" else "answer"

    async def _deliver(self, answer: Answer) -> int:
        self.retry_after = asked_to_wait(answer)
        strikes = self._fate.at("body", self._server.now()) if self._fate is not None else []
        if not strikes:
            await self._delivery.send(answer)
            return answer.status
        spoilage = Spoilage()
        crash: Crash | None = None
        for strike in strikes:
            self.struck(strike.rule, "body", strike.action.kind)
            if isinstance(strike.action, Crash):
                crash = strike.action
            add_spoilage(spoilage, strike)
        try:
            ending = await self._delivery.send_spoiled(answer, spoilage)
        except BrokenStream as error:
            answer = self._server.app.failure(error)
            await self._delivery.send(answer)
            return answer.status
        await self._after_body(ending, spoilage, crash)
        return answer.status

    async def _after_body(self, ending: Ending | None, spoilage: Spoilage, crash: Crash | None) -> None:
        match ending:
            case None:
                pass
            case "hang":
                await self._server.hang(self._connection, spoilage.hang_seconds)
                self._connection.finish()
            case "crash":
                self._server.crash(restart_after=crash.restart_after if crash is not None else None)
            case "reset":
                self._connection.reset()
            case "close":
                self._connection.finish()

    async def _end(self, action: Hang | Reset | Close | Crash) -> None:
        connection = self._connection
        match action:
            case Hang():
                await self._server.hang(connection, action.seconds)
                connection.finish()
            case Reset():
                connection.reset()
            case Close():
                connection.finish()
            case Crash():
                self._server.crash(restart_after=action.restart_after)

    async def _wedged(self, *, noted: bool = False) -> bool:
        """Hang with a wedged server; True when it came back while the client still waited."""
        server = self._server
        if server.ping_alive and server.app.is_ping(self._request):
            return True
        if not noted and server.wedged_by is not None:
            self.struck(server.wedged_by, "before", "wedge")
        if await server.hang_wedged(self._connection):
            return True
        self._connection.finish()
        return False

    # -- the journal --

    def struck(self, rule: str, phase: Phase, kind: str) -> None:
        """A rule struck this attempt."""
        self._server.ledger.strike(rule)
        self.note("strike", rule=rule, phase=phase, kind=kind, code_ran=self._server.words.ran[self._ran])

    def note(self, event: str, **more: Any) -> None:
        """Tell the journal."""
        if self._server.journal is not None:
            self._server.note(event, call=self.subject.call, attempt=self.attempt, **more)


def add_spoilage(spoilage: Spoilage, strike: Strike) -> None:
    """Compose one more fault of phase ``body`` into what goes wrong."""
    action = strike.action
    match action:
        case ContentType():
            spoilage.content_type = action.content_type
        case Delay():
            spoilage.pause += action.delay.sample(strike.draw)
        case Drip():
            spoilage.drip = action
        case Malformed():
            spoilage.malformed = action
        case Truncate():
            spoilage.cut, spoilage.ending = action.at, action.then
        case Reset():
            spoilage.cut, spoilage.ending = action.at, "reset"
        case Hang():
            spoilage.cut, spoilage.ending, spoilage.hang_seconds = 0.5, "hang", action.seconds
        case Crash():
            spoilage.cut, spoilage.ending = 0.5, "crash"


def status_answer(action: Status) -> Answer:
    """The answer that a Status fault stands for; without a body, one as FastAPI would write it."""
    headers = [(name.lower(), value) for name, value in action.headers.items()]
    if action.retry_after is not None:
        value = action.retry_after
        headers.append(("retry-after", f"{value:g}" if isinstance(value, float) else value))
    content_type = action.content_type or "application/json"
    match action.body:
        case None:
            body = dump_json({"detail": status_phrase(action.status)})
        case str():
            body = action.body.encode()
            content_type = action.content_type or "text/plain; charset=utf-8"
        case _:
            body = dump_json(action.body)
    return Answer(status=action.status, body=body, content_type=content_type, headers=tuple(headers))


def asked_to_wait(answer: Answer) -> str | None:
    """The answer's Retry-After."""
    headers = answer.headers
    return next((value for name, value in headers if name.lower() == "retry-after"), None) if headers else None


def status_phrase(status: int) -> str:
    """The usual words for a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status}"
