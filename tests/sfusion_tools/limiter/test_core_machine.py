"""A state machine that does to a limiter whatever clients, networks and time can do."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply
from sfusion_tools.limiter.settings import LimiterSettings

LEASE = 10.0
CLIENTS = ("a", "b", "c")


class WatchedCore(LimiterCore):
    """Checks each grant at the moment it is made."""

    def _grant(self, now: float) -> None:
        line = list(self._queue)
        super()._grant(now)
        served = [ticket for ticket in line if ticket not in self._queue]
        assert served == sorted(line)[: len(served)], "grants go to the lowest tickets, in order"


@dataclass
class Peer:
    """What an honest client knows, kept here independently of the core."""

    name: str
    epoch: int = 0
    alive: bool = True
    waiting: dict[int, int | None] = field(default_factory=dict)  # number -> ticket
    held: dict[str, float] = field(default_factory=dict)  # permit -> until when it is certainly ours
    run: int = 0
    version: int = 0
    incarnation: str = ""


class LimiterMachine(RuleBasedStateMachine):
    """Acquire, release, hand on, renew, expire, cancel, die, lose a reply, resize and restart, in any order."""

    @initialize(limit=st.integers(1, 4))
    def begin(self, limit: int) -> None:
        self.now = 0.0
        self.limit = limit
        self.lives = 0
        self.numbers = itertools.count(1)
        self.core = WatchedCore(LimiterSettings(limit, LEASE), self.now, incarnation="0")
        self.peers = {name: Peer(name) for name in CLIENTS}
        self.peak_allowed = limit
        for peer in self.peers.values():
            self.attach(peer)

    def attach(self, peer: Peer) -> None:
        peer.epoch += 1
        self.drop_expired(peer)
        waiting = tuple(peer.waiting.items())
        reply = self.core.exchange(self.now, Batch(peer.name, Attach(peer.epoch, tuple(peer.held), waiting)))
        peer.incarnation, peer.version = reply.incarnation, 0
        self.receive(peer, reply, renewed=tuple(peer.held))

    def drop_expired(self, peer: Peer) -> None:
        for permit in [p for p, until in peer.held.items() if until <= self.now]:
            del peer.held[permit]

    def receive(self, peer: Peer, reply: LimiterReply, renewed: tuple[str, ...] = ()) -> None:
        if reply.unknown or reply.incarnation != peer.incarnation:
            self.attach(peer)
            return
        for permit in reply.lost:
            peer.held.pop(permit, None)
        for permit in renewed:
            if permit in peer.held:
                peer.held[permit] = self.now + LEASE
        for number, ticket in reply.tickets:
            if number in peer.waiting:
                peer.waiting[number] = ticket
        if reply.version > peer.version:
            peer.version, peer.run = reply.version, reply.run
        granted = sorted(reply.grants)
        for number, permit in reply.grants:
            if number in peer.waiting:
                del peer.waiting[number]
                peer.held[permit] = self.now + LEASE
            else:
                self.core.exchange(self.now, Batch(peer.name, release=(permit,)))
        assert [n for n, _ in granted] == [n for n, _ in reply.grants], "the grants of a client are in its order"

    def check_order(self, peer: Peer, number: int) -> None:
        """No waiter in the queue arrived earlier."""
        ticket = peer.waiting[number]
        if ticket is None:
            return
        for other in self.peers.values():
            there = self.core._clients.get(other.name)
            if other is peer or there is None or other.incarnation != peer.incarnation:
                continue
            for their_number, their_ticket in there.tickets.items():
                assert their_ticket > ticket, f"{other.name}'s {their_number} came before {peer.name}'s {number}"

    def send(self, peer: Peer, **batch: object) -> None:
        renewed = tuple(batch.get("renew", ()))  # type: ignore[arg-type]
        self.receive(peer, self.core.exchange(self.now, Batch(peer.name, **batch)), renewed)  # type: ignore[arg-type]

    def living(self, name: str) -> Peer:
        peer = self.peers[name]
        if not peer.alive:
            peer = self.peers[name] = Peer(name, epoch=peer.epoch)
            # A new process of the same name starts with nothing; what the old one held must not stay out for ever.
            self.attach(peer)
        return peer

    @rule(name=st.sampled_from(CLIENTS), count=st.integers(1, 3))
    def acquire(self, name: str, count: int) -> None:
        peer = self.living(name)
        numbers = [next(self.numbers) for _ in range(count)]
        for number in numbers:
            peer.waiting[number] = None
        self.send(peer, acquire=tuple(numbers))

    @rule(name=st.sampled_from(CLIENTS))
    def poll(self, name: str) -> None:
        peer = self.living(name)
        self.receive(peer, self.core.poll(self.now, name, peer.epoch))

    @rule(name=st.sampled_from(CLIENTS), late=st.booleans())
    def release(self, name: str, late: bool) -> None:
        peer = self.living(name)
        if peer.held:
            permit, until = next(iter(peer.held.items()))
            if late:
                self.now = max(self.now, until)
            del peer.held[permit]
            self.send(peer, release=(permit,))
            assert permit not in {p for c in self.core._clients.values() for p in c.permits}

    @rule(name=st.sampled_from(CLIENTS), number=st.integers(1, 12))
    def release_of_a_foreign_permit(self, name: str, number: int) -> None:
        """Releasing a permit twice, after it expired, or another client's is refused and frees nothing."""
        peer = self.living(name)
        permit = f"{self.core.incarnation}-{number}"
        if permit not in peer.held and not self.core.has_update(name, peer.epoch):
            before = self.core.snapshot(self.now)
            self.core.exchange(self.now, Batch(name, release=(permit,)))
            after = self.core.snapshot(self.now)
            assert (after.in_use, after.fenced) == (before.in_use, before.fenced + 1)

    @rule(name=st.sampled_from(CLIENTS))
    def hand_on(self, name: str) -> None:
        peer = self.living(name)
        self.drop_expired(peer)
        next_in_line = min((t for t in peer.waiting.values() if t is not None), default=None)
        if not peer.held or next_in_line is None or next_in_line > peer.run:
            return
        number = next(n for n, t in peer.waiting.items() if t == next_in_line)
        permit = next(iter(peer.held))
        self.check_order(peer, number)
        before = self.out()
        del peer.waiting[number]
        self.send(peer, handed=((number, permit),))
        assert self.out() <= max(before, self.core.width), "handing on never adds a permit"

    @rule(name=st.sampled_from(CLIENTS))
    def renew(self, name: str) -> None:
        peer = self.living(name)
        self.send(peer, renew=tuple(peer.held))

    @rule(name=st.sampled_from(CLIENTS))
    def cancel(self, name: str) -> None:
        peer = self.living(name)
        if peer.waiting:
            number = next(iter(peer.waiting))
            del peer.waiting[number]
            self.send(peer, cancel=(number,))

    @rule(name=st.sampled_from(CLIENTS))
    def lose_a_reply(self, name: str) -> None:
        """The limiter applies the batch but its reply is lost: the client attaches again."""
        peer = self.living(name)
        number = next(self.numbers)
        peer.waiting[number] = None
        self.core.exchange(self.now, Batch(name, acquire=(number,)))
        self.attach(peer)

    @rule(name=st.sampled_from(CLIENTS))
    def die(self, name: str) -> None:
        self.peers[name].alive = False

    @rule(seconds=st.sampled_from([0.5, 3.0, LEASE / 2, LEASE, 2 * LEASE]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)
        for peer in self.peers.values():
            self.drop_expired(peer)

    @rule(limit=st.integers(1, 5))
    def resize(self, limit: int) -> None:
        self.limit = limit
        self.core.configure(self.now, LimiterSettings(limit, LEASE))
        self.peak_allowed = max(self.limit, self.out())

    @precondition(lambda self: self.lives < 3)
    @rule(knows_clients=st.booleans())
    def restart(self, knows_clients: bool) -> None:
        self.lives += 1
        self.core = WatchedCore(
            LimiterSettings(self.limit, LEASE),
            self.now,
            incarnation=str(self.lives),
            first_ticket=self.lives * 10_000,
            learn_from=list(CLIENTS) if knows_clients else None,
        )

    def out(self) -> int:
        """Permits in use: by the limiter's count, or by the clients' while a restarted limiter is still learning."""
        sure = sum(until > self.now for peer in self.peers.values() for until in peer.held.values())
        return max(sure, self.core.in_use)

    @invariant()
    def never_over_the_limit(self) -> None:
        """Neither side ever counts more permits than allowed; after a decrease the number may only shrink."""
        if not hasattr(self, "core"):
            return
        out = self.out()
        assert out <= self.peak_allowed
        self.peak_allowed = max(self.limit, min(self.peak_allowed, out))

    @invariant()
    def no_permit_is_lost(self) -> None:
        """After all clients have been silent for long enough, no permit is out."""
        if not hasattr(self, "core"):
            return
        known = sum(len(c.permits) for c in self.core._clients.values())
        assert known == self.core.in_use
        assert self.core.next_deadline(self.now) < float("inf") or not (self.core.in_use or self.core._queue)

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        # All clients die. Two leases later the whole limit is available again.
        self.now += 2 * LEASE + 1
        survivor = Peer("survivor")
        self.attach(survivor)
        for number in range(100_000, 100_000 + self.limit + 1):
            survivor.waiting[number] = None
        reply = self.core.exchange(self.now, Batch("survivor", acquire=tuple(survivor.waiting)))
        assert len(reply.grants) == self.limit


LimiterMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=60, deadline=None, derandomize=True, print_blob=False
)
TestLimiterMachine = LimiterMachine.TestCase
