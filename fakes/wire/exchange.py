"""One request from its arrival to its end, with the faults that strike it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Unpack

from sfusion_tools.sandbox.endpoints import redact_path

from ..errors import BrokenStream
from ..faults import Arrival, BodyDamage, ContentFault, Fate, Phase, Status
from ..faults.action import Death, Ping, StrikeNote
from .app import Request, Subject, Visit, is_json
from .connection import Connection
from .core import ServedRequest, ServerCore
from .delivery import Delivery
from .events import EventNote, Ran
from .message import Answer, dump_json, phrase_of

_JSON = "application/json"
_RUNS = ("/run_code", "/run_jupyter")
"""The routes whose answers say how a program ended, perhaps below a prefix."""
_AT_ONCE = 32 * 1024
"""Bytes of a body that are sent without waiting.

An empty buffer has room for them and the head: asyncio lets a writer wait from 64 KiB on.
"""

_HALF = 0.5
"""How much of an answer is sent whose sandbox dies meanwhile."""


class Exchange:
    """Serves one request.

    It is the ``Execution`` that the app reports to, and the site that faults act on.
    """

    def __init__(
        self,
        core: ServerCore,
        connection: Connection,
        request: Request,
        visit: Visit,
        delivery: Delivery,
    ) -> None:
        self._core = core
        self._connection = connection
        self._request = request
        self._visit = visit
        self._delivery = delivery
        self._call = ""
        self._attempt = 0
        self._work = False
        self._fate: Fate | None = None
        self._phase: Phase = "before"
        self._rule = ""
        """The rule that strikes now."""
        self._fault: str | None = None
        """The first rule that struck."""
        self._answer: Answer | None = None
        """What the app or a fault answers, before it is sent."""
        self._delivered: Answer | None = None
        """What is or was sent."""
        self._dies_at_delivery = False
        """The answer is cut, because the sandbox dies while it is sent."""
        self._spoiled = False
        """The body was changed, cut or delayed on its way."""
        self._end_noted = False
        """How the request ends is in the journal."""
        self._ran: Ran = "no"
        self._work_failed = False
        self._cut_off = False
        """A fault has ended the request without an answer."""
        self._left = False
        """Nobody waits for the app's answer any more: what it holds is released at once."""
        self._release: Callable[[], None] | None = None
        """Releases what the app's answer holds."""
        self._code_began: asyncio.Event | None = None
        """Set when the code runs; only made if faults may strike then."""
        self._arrived_unix = 0.0
        """When the request arrived, in unix time; only for the event log."""
        self._arrived_at = 0.0
        """When it arrived, in the time of the loop; only for the event log."""

    # -- Execution: what the app reports --

    @property
    def attempt(self) -> int:
        return self._attempt

    def started(self) -> None:
        if not self._work:
            return
        self._ran = "began"
        core = self._core
        core.ledger.start(self._call)
        if self._code_began is not None:
            self._code_began.set()
        self.note(core.work_events.started)

    def finished(self, **more: Unpack[EventNote]) -> None:
        if not self._work:
            return
        self._ran = "ended"
        core = self._core
        core.ledger.finish(self._call, completed=True)
        self.note(core.work_events.finished, **more)

    def failed(self, event: str, **more: Unpack[EventNote]) -> None:
        self._work_failed = True
        if self._ran == "began":
            self._core.ledger.finish(self._call, completed=False)
        self.note(event, **more)

    # -- from arrival to end --

    @property
    def is_counted(self) -> bool:
        """False for requests to admin routes, and if it broke off before its route was known."""
        return bool(self._call)

    async def serve(self) -> int:
        """Serve the request; return the status that was sent, 0 for none."""
        subject = self._visit.describe()
        if subject is None:
            return await self._send(await self._execute())
        self._call = subject.call
        if subject.work:
            return await self._serve_work(subject)
        self._attempt = self._core.ledger.arrive_other(subject.call)
        return await self._go_through_phases(subject)

    async def _serve_work(self, subject: Subject) -> int:
        """Serve a request for work, which the ledger, the journal and the event log record."""
        core = self._core
        self._work = True
        self._attempt = core.ledger.arrive(subject.call)
        if core.journal is not None:
            self._note_arrival(subject)
        if core.request_log is not None:
            self._arrived_unix = time.time()
            self._arrived_at = core.now()

        status = 0
        try:
            turned_away = await self._visit.admit()
            if turned_away is not None:
                status = await self._send(turned_away)
            else:
                try:
                    status = await self._go_through_phases(subject)
                finally:
                    self._visit.leave()
            return status
        finally:
            core.ledger.leave(subject.call, status)
            if not self._end_noted:
                self._note_end(status)
            if core.request_log is not None:
                core.request_log.ended(self._served(status))

    def _served(self, status: int) -> ServedRequest:
        """Return what the event log says about this request."""
        return ServedRequest(
            call=self._call,
            began=self._arrived_unix,
            seconds=self._core.now() - self._arrived_at,
            sent=len(self._request.body),
            answer=self._delivered if status else None,
            fault=self._fault,
            client_gone=self._connection.lost,
            spoiled=self._spoiled,
            runs_code=self._request.path.endswith(_RUNS),
        )

    async def _go_through_phases(self, subject: Subject) -> int:
        """Go through the phases of a request that was admitted."""
        core = self._core
        try:
            if core.plan.rules:
                self._fate = core.plan.fate(self._arrival(subject))
            if core.wedged_by is not None and not await self._outlast_wedge():
                return 0
            if self._fate is None and not core.plan.concerns("during"):
                return await self._send(await self._execute())
            await self._strike("before")
            if self._answer is None and not self._cut_off:
                await self._run()
            if self._cut_off or self._answer is None:
                return 0
            return await self._deliver(self._answer)
        finally:
            self._left = True
            if self._release is not None:
                self._release()

    def _arrival(self, subject: Subject) -> Arrival:
        return Arrival(
            call=subject.call,
            attempt=self._attempt,
            path=self._request.path,
            method=self._request.method,
            work=subject.work,
            language=subject.language,
            code=subject.code,
            on=subject.on,
            in_flight=max(1, self._core.ledger.in_flight),
        )

    async def _run(self) -> None:
        """Execute, with the faults that strike during and after it."""
        # With rules for this phase every program gets a task, struck or not: calls then differ only
        # in their faults, and not in how they are run.
        if self._core.plan.concerns("during"):
            if not await self._run_until_struck():
                return
        else:
            self._answer = await self._execute()

        # There is no "after execution" when the request was refused before anything ran, or when
        # the work failed.
        if not self._work_failed and (self._ran != "no" or not self._work):
            await self._strike("after")

    async def _run_until_struck(self) -> bool:
        """Execute in a task of its own, and strike once the code runs.

        Return False when a fault has answered or ended the request before the code was through. The
        program runs on by itself then.
        """
        self._code_began = asyncio.Event()
        run = self._core.keep(self._execute())
        code_began = asyncio.ensure_future(self._code_began.wait())
        try:
            await asyncio.wait({run, code_began}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            code_began.cancel()

        if self._code_began.is_set():
            # Whatever happens to the answer, the program keeps running, as on the real server.
            await self._strike("during")
            if self._cut_off or self._answer is not None:
                return False
        self._answer = await run
        return True

    async def _execute(self) -> Answer:
        """Let the app answer."""
        try:
            answer = await self._visit.answer(self)
            if answer.release is not None:
                if self._left:
                    answer.release()
                self._release = answer.release
            return answer
        except Exception as error:  # a bug in a fake must look like a bug in the real server
            return self._core.failure(error)
        finally:
            if self._ran == "began" and not self._work_failed:
                self._core.ledger.finish(self._call, completed=False)
                self.note("broken_off")

    async def _send(self, answer: Answer) -> int:
        """Send the answer as it is; return its status."""
        self._delivered = answer
        if self._work and self._core.journal is not None:
            is_small = answer.stream is None and len(answer.body) <= _AT_ONCE
            if is_small and self._connection.all_sent:
                # Noted before it is sent: a client in another process may continue before this
                # process does, and its next event must not come before the answer.
                self._note_end(answer.status)
        await self._delivery.send(answer)
        return answer.status

    async def _deliver(self, answer: Answer) -> int:
        """Send the answer, with the faults that strike on its way."""
        strikes = []
        if self._fate is not None:
            strikes = self._fate.at("body", self._core.now())
        if not strikes and not self._dies_at_delivery:
            return await self._send(answer)

        self._delivered = answer
        self._spoiled = True
        damage = BodyDamage()
        for strike in strikes:
            self._note_strike(strike.rule, "body", strike.action.kind)
            strike.action.damage_body(damage, strike.draw)
        if self._dies_at_delivery:
            self._visit.die()
            damage.cut = _HALF
            damage.ending = "close"
        try:
            ending = await self._delivery.send_spoiled(answer, damage)
        except BrokenStream as error:
            self._delivered = answer = self._core.app.failure(error)
            await self._delivery.send(answer)
            return answer.status

        match ending:
            case "hang":
                await self.hang(damage.ending_seconds)
            case "crash":
                self.crash(damage.ending_seconds)
            case "reset":
                self.reset()
            case "close":
                self.close()
        return answer.status

    # -- the site of a fault --

    async def _strike(self, phase: Phase) -> None:
        """Let the faults of a phase act, until one ends the request."""
        if self._fate is None:
            return
        self._phase = phase
        for strike in self._fate.at(phase, self._core.now()):
            self._rule = strike.rule
            self._note_strike(strike.rule, phase, strike.action.kind, strike.action.noted())
            waiting = strike.action.strike(self, strike.draw)
            if waiting is not None:
                await waiting
            if self._cut_off:
                return

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def active_for(self) -> float:
        return self._core.now() - self._core.plan.started

    async def hang(self, seconds: float | None) -> None:
        self._cut_off = True
        await self._core.hang(self._connection, seconds)
        self._connection.finish()

    def reset(self) -> None:
        self._cut_off = True
        self._connection.reset()

    def close(self) -> None:
        self._cut_off = True
        self._connection.finish()

    def crash(self, restart_after: float | None) -> None:
        self._cut_off = True
        self._core.crash(restart_after=restart_after)

    async def die(self, how: Death) -> None:
        if how == "cut":
            self._dies_at_delivery = True
            return
        gone = self._visit.die()
        match how:
            case "gone":
                self._answer = gone
            case "reset":
                self.reset()
            case "silent":
                await self.hang(None)

    def respond(self, status: Status) -> None:
        self._answer = status_answer(status, self._visit.error_body(status.status))

    async def spoil(self, action: ContentFault) -> None:
        if action.changes_answer and self._answer is not None and self._answer.stream is not None:
            try:
                self._answer = await self._answer.whole()
            except BrokenStream as error:
                self._answer = self._core.app.failure(error)
                return
        self._answer, takes = self._visit.spoil(self._answer, action)
        if self._phase == "during" and takes:
            await asyncio.sleep(takes)

    async def wedge(self, ping: Ping, seconds: float | None) -> None:
        self._core.wedge(ping=ping, seconds=seconds, rule=self._rule)
        self._cut_off = not await self._outlast_wedge(noted=True)

    async def _outlast_wedge(self, *, noted: bool = False) -> bool:
        """Hang with a wedged server; True when it recovered while the client still waited."""
        core = self._core
        if core.ping_alive and self._visit.ping:
            return True
        if not noted and core.wedged_by is not None:
            self._note_strike(core.wedged_by, "before", "wedge")
        if await core.hang_wedged(self._connection):
            return True
        self._connection.finish()
        return False

    # -- the journal --

    def _note_arrival(self, subject: Subject) -> None:
        path = subject.route or self._request.path
        if subject.route is None and path not in self._core.routes:
            path = redact_path(path)
        noted: EventNote = {
            "path": path,
            "in_flight": self._core.ledger.in_flight,
            "connection": self._connection.number,
        }
        if subject.sent:
            noted["sent"] = subject.sent
        lacks = self._lacking_headers()
        if lacks:
            noted["lacks"] = lacks
        self.note("arrived", **noted)

    def _lacking_headers(self) -> list[str]:
        """Name the headers that are missing or differ.

        Never with a value, which may be a secret.
        """
        headers = self._request.headers
        expected = self._core.expected_headers
        lacks = [name for name, value in expected.items() if headers.get(name) != value]
        content_type = headers.get("Content-Type", _JSON)
        if self._visit.expects_json and content_type != _JSON and not is_json(content_type):
            lacks.append("Content-Type")
        return lacks

    def _note_end(self, status: int) -> None:
        """Record how the request ends."""
        self._end_noted = True
        noted: EventNote = {"status": status, "client_gone": self._connection.lost}
        if self._delivered is not None:
            for name, value in self._delivered.headers:
                if name.lower() == "retry-after":
                    noted["retry_after"] = value
                    break
        self.note("answered" if status else "unanswered", **noted)

    def _note_strike(
        self,
        rule: str,
        phase: Phase,
        kind: str,
        more: StrikeNote | None = None,
    ) -> None:
        """Record that a fault strikes this request."""
        self._core.ledger.strike(rule)
        self._fault = self._fault or rule
        self.note(
            "strike",
            rule=rule,
            phase=phase,
            kind=kind,
            code_ran=self._core.work_events.ran[self._ran],
            **(more or {}),
        )

    def note(self, event: str, **more: Unpack[EventNote]) -> None:
        """Write an event of this attempt to the journal."""
        self._core.note(event, call=self._call, attempt=self._attempt, **more)


def status_answer(action: Status, usual: Any = None) -> Answer:
    """The answer of a Status fault; without a body, the usual one or one as FastAPI's."""
    headers = [(name.lower(), value) for name, value in action.headers.items()]
    wait = action.retry_after
    if wait is not None:
        headers.append(("retry-after", f"{wait:g}" if isinstance(wait, float) else wait))

    content_type = action.content_type or "application/json"
    match action.body:
        case None:
            detail = {"detail": phrase_of(action.status) or f"status {action.status}"}
            body = dump_json(detail if usual is None else usual)
        case str():
            body = action.body.encode()
            content_type = action.content_type or "text/plain; charset=utf-8"
        case _:
            body = dump_json(action.body)
    return Answer(
        status=action.status, body=body, content_type=content_type, headers=tuple(headers)
    )
