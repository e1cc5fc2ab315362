"""The ledger of sandboxes: which exist, what limits them, when they are ready and when they die.

No clock, no I/O: every method is given the time, which never runs backwards.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from sfusion_tools.limiter.pace import Bucket

from ..errors import SandboxFull
from ..faults.chance import Draw, drawer
from .events import (
    DeathCause,
    EventCause,
    EventDetails,
    EventName,
    LifecycleEvent,
    LifecycleSink,
    RefusalCause,
)
from .model import Lifecycle
from .sandbox import Sandbox, StoredFile

MOST_LIVE = 10_000
"""Sandboxes that can exist at once, whatever the model (chosen: ten times the widest report)."""
MOST_ENDED = 10_000
"""Ended sandboxes that are remembered (chosen: about 10 MB)."""
MOST_STORED = 64 * 1024 * 1024
"""Bytes of all files together (chosen: 1 MB for each of 64 sandboxes)."""
MOST_FILES = 1000
"""Files of one sandbox (chosen: more than an episode writes)."""
LONGEST_TAG = 200
"""Characters of an episode's tag or a name that are kept (chosen)."""
LONGEST_PATH = 4096
"""Characters of a file's path: Linux's own limit."""

_Timer = Literal["ready", "expire", "idle", "die", "deleted"]


@dataclass(frozen=True, slots=True)
class CreateRefusal:
    """Why no sandbox was created."""

    why: RefusalCause
    status: int
    retry_after: float | None


class SandboxLedger:
    """All sandboxes of one service.

    ``note`` receives what happens, with the time at which it happened.
    """

    def __init__(
        self,
        model: Lifecycle | None = None,
        *,
        seed: int = 0,
        note: LifecycleSink | None = None,
    ) -> None:
        self.model = model or Lifecycle()
        self.seed = seed
        self._note_to = note
        self.clear()

    def clear(self) -> None:
        """Forget every sandbox and start again."""
        self._there: dict[str, Sandbox] = {}
        """Those that are not deleted, dead ones included."""
        self._ended: OrderedDict[str, Sandbox] = OrderedDict()
        """The last that died or were deleted."""
        self._names: dict[str, str] = {}
        self._keys: OrderedDict[str, str] = OrderedDict()
        self._timers: list[tuple[float, int, _Timer, str]] = []
        self._order = 0
        self._queue: deque[str] = deque()
        self._drawn: Counter[str] = Counter()
        self._stored = 0
        self._bucket: Bucket | None = None
        self.booting = 0
        self.live = 0
        """Pending, running and being deleted."""
        self.created = 0
        self.refused = 0
        self.died = 0
        self.deleted = 0
        self.peak_live = 0
        self.peak_pending = 0
        self.pending = 0

    # -- time --

    def next_at(self) -> float | None:
        """When something happens next if no request comes; None if nothing does."""
        return self._timers[0][0] if self._timers else None

    def advance(self, now: float) -> None:
        """Let everything happen that is due, in its order and with its own time."""
        while self._timers and self._timers[0][0] <= now:
            at, _, timer, instance = heapq.heappop(self._timers)
            sandbox = self._there.get(instance)
            if sandbox is not None:
                self._fire(timer, sandbox, at)

    def _fire(self, timer: _Timer, sandbox: Sandbox, at: float) -> None:
        match timer:
            case "ready":
                if sandbox.is_booting:
                    self._become_ready(sandbox, at)
            case "expire":
                if sandbox.expire_timer == at:
                    sandbox.expire_timer = None
                    self._check_expiry(sandbox, at)
            case "idle":
                sandbox.idle_timer = None
                self._check_idle(sandbox, at)
            case "die":
                if sandbox.state == "running":
                    self._die(sandbox, at, "death")
            case "deleted":
                self._finish_delete(sandbox, at)

    def _set_timer(self, at: float, timer: _Timer, sandbox: Sandbox) -> None:
        self._order += 1
        heapq.heappush(self._timers, (at, self._order, timer, sandbox.id))

    # -- create --

    def create(
        self,
        now: float,
        *,
        episode: str = "",
        name: str = "",
        key: str = "",
        labels: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        idle: float | None = None,
        by: EventCause | None = None,
    ) -> Sandbox | CreateRefusal:
        """Create a sandbox, or say why not.

        ``key`` is an idempotency key: with the key of a sandbox that is still there, that one is
        returned. ``ttl`` and ``idle`` are what the client asks for; the model's are the most.
        """
        self.advance(now)
        known = self._there.get(self._keys.get(key, "")) if key else None
        if known is not None and known.is_orphan:
            self._note("sandbox_adopted", now, known, by)
            return known
        refusal = self._refusal(now)
        if refusal is not None:
            self.refused += 1
            self._note_refusal(now, episode[:LONGEST_TAG], refusal, by)
            return refusal

        sandbox = Sandbox(
            id=self._new_id(episode),
            episode=episode[:LONGEST_TAG],
            name=name[:LONGEST_TAG],
            labels=labels or {},
            settings=settings or {},
            created=now,
            ttl=_least(ttl, self.model.ttl),
            idle=_least(idle, self.model.idle),
        )
        self._enter(sandbox, key)
        self._note(
            "sandbox_created",
            now,
            sandbox,
            by,
            name=sandbox.name,
            ttl=sandbox.ttl,
            idle=sandbox.idle,
        )
        self._queue.append(sandbox.id)
        self._boot_next(now)
        self.advance(now)
        return sandbox

    def _refusal(self, now: float) -> CreateRefusal | None:
        model = self.model
        most = MOST_LIVE if model.live is None else min(model.live, MOST_LIVE)
        if self.live >= most:
            return CreateRefusal("live", model.status, model.retry_after)
        if model.creates_per_second is None:
            return None
        if self._bucket is None:
            self._bucket = Bucket(model.creates_per_second, model.burst, now=now)
        if self._bucket.take(now):
            return None
        wait = model.retry_after
        if wait is None:
            wait = self._bucket.ready_at(now) - now
        return CreateRefusal("rate", model.status, wait)

    def _new_id(self, episode: str) -> str:
        """An id that depends on the seed, the tag, and how many with this tag came before.

        So the ids of a run do not depend on the order in which its episodes create.
        """
        number = self._drawn[episode]
        self._drawn[episode] = number + 1
        if len(self._drawn) > MOST_LIVE + MOST_ENDED:
            del self._drawn[next(iter(self._drawn))]
        text = f"{self.seed}\x1f{episode}\x1f{number}\x1f"
        while True:
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10)
            if digest.hexdigest() not in self._there:
                return digest.hexdigest()
            text += "+"

    def _draw(self, sandbox: Sandbox) -> Draw:
        return drawer(self.seed, "sandbox", sandbox.id)

    def _enter(self, sandbox: Sandbox, key: str) -> None:
        self._there[sandbox.id] = sandbox
        if sandbox.name:
            self._names[sandbox.name] = sandbox.id
        if key:
            self._keys[key] = sandbox.id
            if len(self._keys) > MOST_LIVE:
                self._keys.popitem(last=False)
        self.created += 1
        self.live += 1
        self.pending += 1
        self.peak_live = max(self.peak_live, self.live)
        self.peak_pending = max(self.peak_pending, self.pending)

    def _boot_next(self, now: float) -> None:
        """Start those whose turn it is."""
        while self._queue and (self.model.starting is None or self.booting < self.model.starting):
            sandbox = self._there[self._queue.popleft()]
            sandbox.is_booting = True
            self.booting += 1
            takes = self.model.boot.sample(self._draw(sandbox), "boot")
            self._set_timer(now + takes, "ready", sandbox)

    def _become_ready(self, sandbox: Sandbox, at: float) -> None:
        self._leave_pending(sandbox)
        sandbox.state = "running"
        sandbox.ready = at
        sandbox.used = at
        self._note("sandbox_ready", at, sandbox)
        if sandbox.ttl is not None:
            sandbox.expires = at + sandbox.ttl
            self._watch_expiry(sandbox)
        self._watch_idle(sandbox)
        draw = self._draw(sandbox)
        if draw("dies") < self.model.dies:
            self._set_timer(at + self.model.dies_after.sample(draw, "death"), "die", sandbox)
        self._boot_next(at)

    def _leave_pending(self, sandbox: Sandbox) -> None:
        self.pending -= 1
        if sandbox.is_booting:
            sandbox.is_booting = False
            self.booting -= 1
        else:
            self._queue.remove(sandbox.id)

    # -- use --

    def find(self, name: str, now: float) -> Sandbox | None:
        """The sandbox of an id or a name, in any state but deleted; ended ones for a while."""
        self.advance(now)
        instance = self._names.get(name, name)
        return self._there.get(instance)

    def listed(self, now: float) -> list[Sandbox]:
        """Those that are not deleted, oldest first."""
        self.advance(now)
        return list(self._there.values())

    def running(self, name: str, now: float) -> Sandbox | None:
        """The sandbox of an id or a name if it can be used."""
        sandbox = self.find(name, now)
        return sandbox if sandbox is not None and sandbox.state == "running" else None

    def touch(self, sandbox: Sandbox, now: float) -> None:
        """Count a use, which puts off the end of an idle sandbox."""
        sandbox.used = now

    def begin_episode(self, sandbox: Sandbox, episode: str, now: float) -> None:
        """Let an episode begin in a sandbox that is there: from now on it has this tag."""
        self.touch(sandbox, now)
        sandbox.episode = episode[:LONGEST_TAG]
        sandbox.steps = 0

    def begin(self, sandbox: Sandbox, now: float, call: str) -> None:
        """A command begins to run in it."""
        self.touch(sandbox, now)
        sandbox.count_command(call)

    def end(self, sandbox: Sandbox, now: float) -> None:
        """A command has come to its end, or its sandbox did."""
        sandbox.executing -= 1
        sandbox.steps += 1
        self.touch(sandbox, now)
        self._watch_idle(sandbox)

    def write(
        self,
        sandbox: Sandbox,
        path: str,
        content: bytes,
        *,
        now: float,
        writer: str = "",
        by: EventCause | None = None,
    ) -> None:
        """Store a file; raise SandboxFull if there is no room."""
        self.touch(sandbox, now)
        old = sandbox.files.get(path)
        grows = len(content) - (len(old.content) if old is not None else 0)
        is_too_many = old is None and len(sandbox.files) >= MOST_FILES
        if self._stored + grows > MOST_STORED or is_too_many or len(path) > LONGEST_PATH:
            raise SandboxFull(
                f"the fake keeps {MOST_FILES:,} files of a sandbox, with paths of at most "
                f"{LONGEST_PATH:,} characters, and {MOST_STORED:,} bytes of all files; there is no "
                "room for this one"
            )
        self._stored += grows
        writer = writer[:LONGEST_TAG] or sandbox.episode
        sandbox.files[path] = StoredFile(content, writer)
        self._note("file_written", now, sandbox, by, path=_digest(path), writer=writer)

    def read(
        self, sandbox: Sandbox, path: str, *, now: float, by: EventCause | None = None
    ) -> StoredFile | None:
        """A file, if it is there."""
        self.touch(sandbox, now)
        stored = sandbox.files.get(path)
        if stored is not None:
            self._note("file_read", now, sandbox, by, path=_digest(path), writer=stored.writer)
        return stored

    def renew(
        self,
        sandbox: Sandbox,
        now: float,
        *,
        ttl: float | None = None,
        by: EventCause | None = None,
    ) -> None:
        """Let its time begin again, with ``ttl`` seconds if the client asks for a number."""
        self.touch(sandbox, now)
        sandbox.ttl = _least(ttl if ttl is not None else sandbox.ttl, self.model.ttl)
        if sandbox.state == "running" and sandbox.ttl is not None:
            sandbox.expires = now + sandbox.ttl
            self._watch_expiry(sandbox)
        self._note("sandbox_renewed", now, sandbox, by, ttl=sandbox.ttl)

    # -- end --

    def kill(self, sandbox: Sandbox, now: float, *, by: EventCause | None = None) -> None:
        """Let a sandbox die, as a fault does; nothing happens to one that has ended."""
        self.advance(now)
        if sandbox.state in ("pending", "running"):
            self._die(sandbox, now, "fault", by)
            self.advance(now)

    def leave(self, sandbox: Sandbox, now: float) -> None:
        """Note that its client has gone: it is deleted when its last message has been served."""
        self.advance(now)
        if sandbox.state in ("pending", "running"):
            self._note("sandbox_left", now, sandbox)

    def delete(self, name: str, now: float, *, by: EventCause | None = None) -> Sandbox | None:
        """Ask for a delete, which may take time; None if there is no such sandbox."""
        sandbox = self.find(name, now)
        if sandbox is None:
            return None
        sandbox.deletes += 1
        if sandbox.state == "deleting":
            return sandbox

        self._note("sandbox_deleting", now, sandbox, by, state=sandbox.state)
        if sandbox.state == "dead":
            # What is dead does not count as live any more: there is nothing to wait for.
            self._finish_delete(sandbox, now)
            return sandbox
        if sandbox.state == "pending":
            self._leave_pending(sandbox)
        sandbox.state = "deleting"
        takes = self.model.delete_takes.sample(self._draw(sandbox), "delete")
        self._set_timer(now + takes, "deleted", sandbox)
        self._boot_next(now)
        self.advance(now)
        return sandbox

    def _watch_expiry(self, sandbox: Sandbox) -> None:
        """Set the timer for when its time is up, unless one is set that fires first."""
        expires = sandbox.expires
        if expires is None:
            return
        if sandbox.expire_timer is None or expires < sandbox.expire_timer:
            sandbox.expire_timer = expires
            self._set_timer(expires, "expire", sandbox)

    def _check_expiry(self, sandbox: Sandbox, at: float) -> None:
        if sandbox.state != "running" or sandbox.expires is None:
            return
        if sandbox.expires <= at:
            self._die(sandbox, at, "ttl")
        else:
            self._watch_expiry(sandbox)  # it was renewed

    def _watch_idle(self, sandbox: Sandbox) -> None:
        """Set the timer for the end of an idle sandbox, unless it is set or a command runs."""
        idles_out = sandbox.idles_out
        if idles_out is not None and sandbox.idle_timer is None:
            sandbox.idle_timer = idles_out
            self._set_timer(idles_out, "idle", sandbox)

    def _check_idle(self, sandbox: Sandbox, at: float) -> None:
        idles_out = sandbox.idles_out
        if idles_out is None:
            return
        if idles_out <= at:
            self._die(sandbox, at, "idle")
        else:
            self._watch_idle(sandbox)  # it was used

    def _die(
        self, sandbox: Sandbox, at: float, why: DeathCause, by: EventCause | None = None
    ) -> None:
        state = sandbox.state
        if state == "pending":
            self._leave_pending(sandbox)
        sandbox.state = "dead"
        sandbox.why = why
        sandbox.ended = at
        self.live -= 1
        self.died += 1
        self._drop_files(sandbox)
        self._note("sandbox_died", at, sandbox, by, why=why, state=state)
        self._remember(sandbox)
        self._boot_next(at)

    def _finish_delete(self, sandbox: Sandbox, at: float) -> None:
        if sandbox.state == "deleting":
            self.live -= 1
            sandbox.ended = at
        sandbox.state = "deleted"
        self.deleted += 1
        self._drop_files(sandbox)
        self._note("sandbox_deleted", at, sandbox)
        self._leave(sandbox)
        self._remember(sandbox)

    def _drop_files(self, sandbox: Sandbox) -> None:
        self._stored -= sum(len(stored.content) for stored in sandbox.files.values())
        sandbox.files.clear()

    def _remember(self, sandbox: Sandbox) -> None:
        self._ended[sandbox.id] = sandbox
        if len(self._ended) > MOST_ENDED:
            _, oldest = self._ended.popitem(last=False)
            self._leave(oldest)

    def _leave(self, sandbox: Sandbox) -> None:
        self._there.pop(sandbox.id, None)
        if self._names.get(sandbox.name) == sandbox.id:
            del self._names[sandbox.name]

    # -- what is known --

    def all(self) -> Iterator[Sandbox]:
        """Every sandbox that is remembered, live and dead ones first."""
        yield from self._there.values()
        for sandbox in self._ended.values():
            if sandbox.id not in self._there:
                yield sandbox

    def orphans(self) -> list[Sandbox]:
        """Those that are there and that nobody has asked to delete."""
        return [sandbox for sandbox in self._there.values() if sandbox.is_orphan]

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "created": self.created,
            "refused": self.refused,
            "died": self.died,
            "deleted": self.deleted,
            "pending": self.pending,
            "live": self.live,
            "orphans": len(self.orphans()),
            "peak_live": self.peak_live,
            "peak_pending": self.peak_pending,
            "sandboxes": [sandbox.as_dict() for sandbox in self.all()],
        }

    def _note(
        self,
        event: EventName,
        at: float,
        sandbox: Sandbox,
        by: EventCause | None = None,
        **more: Unpack[EventDetails],
    ) -> None:
        if self._note_to is None:
            return
        noted: LifecycleEvent = {"at": at, "source": "server", "event": event}
        if by is not None:
            noted["call"] = by.call
            noted["attempt"] = by.attempt
        noted["instance"] = sandbox.id
        noted["episode"] = sandbox.episode
        self._note_to({**noted, **more})

    def _note_refusal(
        self, at: float, episode: str, refusal: CreateRefusal, by: EventCause | None
    ) -> None:
        if self._note_to is None:
            return
        noted: LifecycleEvent = {"at": at, "source": "server", "event": "sandbox_refused"}
        if by is not None:
            noted["call"] = by.call
            noted["attempt"] = by.attempt
        noted["episode"] = episode
        noted["why"] = refusal.why
        if refusal.retry_after is not None:
            noted["retry_after"] = f"{refusal.retry_after:g}"
        self._note_to(noted)


def _least(wanted: float | None, most: float | None) -> float | None:
    """The smaller of two limits, of which each may be missing."""
    if wanted is None or most is None:
        return most if wanted is None else wanted
    return min(wanted, most)


def _digest(path: str) -> str:
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
