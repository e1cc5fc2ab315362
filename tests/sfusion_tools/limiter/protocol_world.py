"""Both halves of the limiter's protocol and the wire between them, in a world where everything can
go wrong.

Every action is a method named in ``ACTIONS``; its argument picks among what is there to be picked.
After each action the world checks what docs/limiter.md promises, from what the clients believe and
not from what the limiter says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from sfusion_tools.limiter.client_core import LAST_RETRY, ClientCore
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Attach, Batch, LimiterRecord, LimiterReply, Poll
from sfusion_tools.limiter.record import learning_of
from sfusion_tools.limiter.settings import LimiterSettings

LEASES = (6.0, 10.0, 30.0)
PAUSES = (0.01, 0.5, 2.0, 5.0, 6.0, 10.0, 31.0)
STRIDE = 1.9
"""Seconds between the looks of clients in a world where nothing goes wrong.

Less than a third of any lease.
"""
ROUNDS_TO_AGREE = 4
"""How often the network runs until both sides agree. Chosen: it was always enough."""
ROUNDS_TO_SERVE = 200
"""How often it runs, at most, until all callers were served. Chosen: far more than are needed."""
SHARES = {"a": "", "b": "", "c": "", "d": "nightly"}


class WatchedCore(LimiterCore):
    """Checks each decision of the limiter at the moment it is made."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.told: dict[str, float] = {}
        self.joined: dict[int, int] = {}
        super().__init__(*args, observer=self.check_event, **options)

    def _next_in_line(self) -> Any:
        turn = super()._next_in_line()
        if turn is not None:
            share, ticket = turn
            assert ticket == min(share.waiters), "first come, first served"
            rivals = [rival for rival in self._shares if rival.waiters]
            part = (self._free() + sum(rival.out for rival in rivals)) / len(rivals)
            entitled = [rival for rival in rivals if rival.out < part - 1e-6]
            assert share in entitled, "no more than its part"
            assert share.turns == min(rival.turns for rival in entitled), "in turn"
        return turn

    def take(self, now: float, name: str, epoch: int, number: int) -> tuple[str, float] | None:
        permit = super().take(now, name, epoch, number)
        assert permit is None or not self._shares.waiting, "nobody overtakes those who wait"
        return permit

    def _enqueue(self, client: Any, number: int, ticket: int) -> None:
        self.joined[ticket] = self._version
        super()._enqueue(client, number, ticket)

    def _attach(self, now: float, client: Any, batch: Batch, attach: Attach, *rest: Any) -> None:
        keeps = client.attached or self.learning_at(now)
        had = dict(client.tickets)
        had |= {
            p.waiter: p.ticket
            for p in self._permits.values()
            if p.client is client and p.ticket is not None
        }
        super()._attach(now, client, batch, attach, *rest)
        for number, ticket in attach.waiting if keeps else ():
            before = had.get(number, ticket)
            assert before is None or client.tickets[number] == before, "a waiter keeps its place"

    def _reply(self, now: float, client: Any, *rest: Any) -> LimiterReply:
        assert client.permits.issuperset(permit for _, permit in client.grants), (
            "a grant that is sent is still out"
        )
        reply = super()._reply(now, client, *rest)
        self.told[client.name] = reply.lease
        if reply.run:
            assert self.in_use <= self.settings.rate_limit, (
                "nothing is handed on while permits above the limit drain"
            )
            assert not self.learning_at(now), "nor while the queue is not known"
            assert len({c.share.name for c in self._clients.values() if c.attached}) == 1, (
                "nor from another share"
            )
            line = [
                owner.name
                for ticket, (owner, _) in client.share.waiters.items()
                if ticket <= reply.run
            ]
            assert set(line) == {client.name}, "nor while others are ahead"
        return reply

    def _drop_waiters(self, client: Any) -> None:
        self.dropping = client
        super()._drop_waiters(client)

    def check_event(self, event: str, client: str, facts: dict[str, object]) -> None:
        if event == "dropped" and not self.detaching:
            assert self.now >= self.dropping.seen + self.told.get(client, 0.0), (
                "silent for less than the lease it knows"
            )

    detaching = False
    now = 0.0

    def _expire(self, now: float) -> None:
        self.now = now
        super()._expire(now)

    def _detach(self, now: float, batch: Batch) -> None:
        self.detaching = True
        super()._detach(now, batch)
        self.detaching = False


class Cluster:
    """A Ray cluster: its limiter, which can be replaced, and its store."""

    def __init__(self, world: World, label: str) -> None:
        self.world = world
        self.label = label
        self.lives = itertools.count(1)
        self.actors = itertools.count(1)
        self.record: LimiterRecord | None = None
        self.removed: tuple[str, float] | None = None
        self.settings = LimiterSettings(world.limit, LEASES[1])
        self.allowed = world.limit
        self.start(stranger=True)

    def start(self, *, stranger: bool) -> None:
        """Start the limiter, as a new actor or as the one that ran before."""
        if stranger:
            self.actor = f"{self.label}{next(self.actors)}"
        life = next(self.lives)
        since = (
            self.removed
            and self.record
            and self.removed[0] == self.record.actor
            and self.now - self.removed[1]
        )
        learn_from, learn_for = self.world.learning_of(self.record, self.settings, since or None)
        self.core: WatchedCore = self.world.core_class(
            self.settings,
            self.now,
            incarnation=f"{self.label}{life}",
            first_ticket=life * 10_000 + (5_000 if self.label == "B" else 0),
            learn_from=learn_from,
            learn_for=learn_for,
        )
        self.write()

    @property
    def now(self) -> float:
        return self.world.now

    def write(self, attaching: Batch | None = None) -> None:
        core = self.core
        self.record = self.world.record_of(
            self.actor, core.settings, core.clients(), core.longest_lease(self.now), attaching
        )

    def handle(self, request: Batch | Poll) -> LimiterReply:
        if isinstance(request, Poll):
            return self.core.poll(self.now, request)
        if request.attach is not None:
            self.write(request)
        return self.core.exchange(self.now, request)

    def configure(self, **changes: Any) -> None:
        fields = {
            name: getattr(self.settings, name) for name in LimiterSettings.__dataclass_fields__
        }
        self.settings = LimiterSettings(**{**fields, **changes})
        self.core.configure(self.now, self.settings)
        self.write()
        # Permits that are out stay out, also those whose grant is still on its way.
        self.allowed = max(self.settings.rate_limit, self.allowed)

    def check_limit(self, believed: int) -> None:
        assert believed <= self.allowed, (
            f"{believed} permits are out, the limit is {self.settings.rate_limit}"
        )
        out = max(believed, sum(p.expires > self.now for p in self.core._permits.values()))
        if not self.core.learning_at(self.now):
            self.allowed = max(self.settings.rate_limit, min(self.allowed, out))


class Peer:
    """A client and its callers: which waiter has which permit."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.core: ClientCore = world.client_class(
            name, world.shares[name], first_request=next(world.numbers) * 1000
        )
        self.name = name
        self.cluster = world.clusters[0]
        self.callers: dict[int, str | None] = {}
        self.stalled = False
        self.run = 0, 0
        self.tickets: dict[int, int] = {}

    def acquire(self) -> None:
        self.callers[self.core.acquire(self.world.now)] = None

    def take(self) -> None:
        """As acquire, in the limiter's process."""
        permit = self.core.take(self.world.now, partial(self.cluster.core.take, self.world.now))
        if permit is None:
            self.acquire()
        else:
            assert None not in self.callers.values(), "nobody overtakes an earlier caller"
            self.callers[self.core._next_waiter - 1] = permit

    def granted(self, grants: list[tuple[int, str]]) -> None:
        for number, permit in grants:
            if number in self.callers:
                assert self.core.held[permit] > self.world.now, (
                    "a caller gets a permit only while it is certainly ours"
                )
                assert permit not in self.callers.values(), "one caller per permit"
                self.callers[number] = permit
            else:
                self.release(permit)

    def release(self, permit: str) -> None:
        now, heir = self.world.now, self.core.heir
        if heir is not None:
            self.check_turn(heir)
        served = self.core.release(now, permit)
        if served is not None:
            self.granted([(served, permit)])

    def check_turn(self, heir: int) -> None:
        """It is within the run of the newest reply, and nobody who was in the queue then is
        ahead of it."""
        ticket = self.core._waiting[heir]
        version, run = self.run
        assert ticket is not None
        assert ticket <= run, "handed on beyond the run"
        core = self.cluster.core
        if core.incarnation == self.core._connection.incarnation:
            ahead = (
                [t for t in core._clients[self.name].share.waiters if t < ticket]
                if self.name in core._clients
                else []
            )
            for other in ahead:
                owner = core._clients[self.name].share.waiters[other][0].name
                assert owner == self.name or core.joined[other] >= version, f"{owner} was ahead"

    def finish(self, number: int) -> None:
        permit = self.callers.pop(number)
        if permit is None:
            self.core.cancel(self.world.now, number)
        else:
            self.release(permit)

    def give_back(self, number: int) -> None:
        """As finish, in the limiter's process."""
        permit, tell = self.callers[number], partial(self.cluster.core.give_back, self.world.now)
        if permit is not None and self.core.give_back(permit, tell, False, False):
            del self.callers[number]
        else:
            self.finish(number)

    def receive(self, request: Batch | Poll, reply: LimiterReply) -> None:
        if self.accepts(request, reply):
            if isinstance(request, Batch) and request.attach is not None:
                self.tickets.clear()
                self.run = 0, 0
            self.tickets |= dict(reply.tickets)
            self.run = max(self.run, (reply.version, reply.run))
        self.granted(self.core.receive(self.world.now, request, reply).grants)

    def accepts(self, request: Batch | Poll, reply: LimiterReply) -> bool:
        core, now = self.core, self.world.now
        pending = core._in_flight if isinstance(request, Batch) else core._polling
        if (
            pending is None
            or pending[0] != request
            or reply.unknown
            or (reply.grants and now >= pending[1] + reply.lease)
        ):
            return False
        return isinstance(request, Batch) or (
            core._connection.attached and request.epoch == core._connection.epoch
        )

    def believed(self) -> list[str]:
        return [permit for permit, until in self.core.held.items() if until > self.world.now]


class World:
    """Three clients and two clusters; all clients begin in the first."""

    def __init__(
        self,
        core_class: type[WatchedCore] = WatchedCore,
        client_class: type[ClientCore] = ClientCore,
        record_of: Callable[..., LimiterRecord] = LimiterRecord.of,
        learning_of: Callable[..., Any] = learning_of,
        *,
        limit: int = 2,
        clients: str = "abcd",
        one_share: bool = False,
    ) -> None:
        self.core_class, self.client_class = core_class, client_class
        self.record_of, self.learning_of = record_of, learning_of
        self.shares = {name: "" if one_share else share for name, share in SHARES.items()}
        self.limit = limit
        self.now = 100.0
        self.steps = 0
        self.numbers = itertools.count(1)
        self.clusters = [Cluster(self, "A"), Cluster(self, "B")]
        self.peers = {name: Peer(self, name) for name in clients}
        self.requests: list[tuple[Peer, Cluster, Batch | Poll]] = []
        self.replies: list[tuple[Peer, Batch | Poll, LimiterReply]] = []

    # What callers do.

    def acquire(self, pick: int) -> None:
        for _ in range(1 + pick % 3):
            self._peer(pick).acquire()

    def finish(self, pick: int) -> None:
        peer = self._peer(pick)
        if peer.callers:
            peer.finish(_nth(list(peer.callers), pick // 4))

    def take(self, pick: int) -> None:
        peer = self._peer(pick)
        if not peer.stalled:
            peer.take()

    def give_back(self, pick: int) -> None:
        peer = self._peer(pick)
        if peer.callers and not peer.stalled:
            peer.give_back(_nth(list(peer.callers), pick // 4))

    # What clients do.

    def send(self, pick: int) -> None:
        """Let the next client that has something to send do so."""
        for offset in range(len(self.peers)):
            peer = self._peer(pick + offset)
            if not peer.stalled and self._send(peer, pick % 2 == 0):
                return

    def _send(self, peer: Peer, hurry: bool) -> bool:
        if self.now >= peer.core.renew_at:
            peer.core.renew(self.now)
        if hurry:
            peer.core.hurry(self.now)
        requests = [
            r
            for r in (peer.core.next_batch(self.now), peer.core.next_poll(self.now))
            if r is not None
        ]
        for request in requests:
            if isinstance(request, Batch) and request.attach is not None:
                known = tuple(
                    (number, peer.tickets.get(number)) for number, _ in request.attach.waiting
                )
                assert request.attach.waiting == known, "a client reports the places that it knows"
            self.requests.append((peer, peer.cluster, request))
        return bool(requests)

    def stall(self, pick: int) -> None:
        """Stop, or go on."""
        peer = self._peer(pick)
        peer.stalled = not peer.stalled

    def die(self, pick: int) -> None:
        """Its place is taken by another process with the same name. What it sent is still on its
        way."""
        peer = self._peer(pick)
        if pick % 2 and (farewell := peer.core.farewell()) is not None:
            self.requests.append((peer, peer.cluster, farewell))
        self.peers[peer.name] = Peer(self, peer.name)

    def change_session(self, pick: int) -> None:
        """Connect to Ray again, to the other cluster or to the same one."""
        peer = self._peer(pick)
        if pick // 4 % 3:
            peer.cluster = self.clusters[peer.cluster is self.clusters[0]]
        peer.core.change_session()
        for pending in (peer.core._in_flight, peer.core._polling):
            if pending is not None:
                peer.core.lose(self.now, pending[0])

    # What the network does.

    def deliver(self, pick: int) -> None:
        """Deliver a request, now or again later, in any order."""
        if self.requests:
            self._deliver(pick % len(self.requests), again=pick % 5 == 0)
        else:
            self.send(pick)

    def answer(self, pick: int) -> None:
        """Deliver a reply, now or again later, in any order."""
        replies = [reply for reply in self.replies if not reply[0].stalled]
        if replies:
            peer, request, reply = found = _nth(replies, pick)
            if pick % 5:
                self.replies.remove(found)
            peer.receive(request, reply)
        else:
            self.deliver(pick)

    def lose(self, pick: int) -> None:
        """A client gives up waiting for a reply. The request may be on its way, or arrive later."""
        peer = self._peer(pick)
        pending = (peer.core._in_flight, peer.core._polling)[pick // 4 % 2]
        if pending is not None and not peer.stalled:
            peer.core.lose(self.now, pending[0])
            if pick % 3:
                self.requests = [r for r in self.requests if r[2] is not pending[0]]
                self.replies = [r for r in self.replies if r[1] is not pending[0]]

    # What time, operators and Ray do.

    def pause(self, pick: int) -> None:
        """Long enough to try again what was lost."""
        self.now += 0.1

    def wait(self, pick: int) -> None:
        self.now += _nth(PAUSES, pick)
        for cluster in self.clusters:
            cluster.core.tick(self.now)

    def resize(self, pick: int) -> None:
        self._cluster(pick).configure(rate_limit=1 + pick // 2 % 3)

    def change_lease(self, pick: int) -> None:
        self._cluster(pick).configure(lease=_nth(LEASES, pick // 2))

    def restart(self, pick: int) -> None:
        """Ray restarts the actor."""
        self._cluster(pick).start(stranger=False)

    def replace(self, pick: int) -> None:
        """The actor is killed for good, or removed by the command; a stranger creates the next
        one."""
        cluster = self._cluster(pick)
        if pick // 2 % 2:
            cluster.removed = cluster.actor, self.now
            self.now += _nth(PAUSES, pick // 4)
        cluster.settings = LimiterSettings(cluster.settings.rate_limit, _nth(LEASES, pick // 4))
        cluster.start(stranger=True)

    def act(self, action: str, pick: int) -> None:
        self.steps += 1
        getattr(self, action)(pick)
        self.check()

    def check(self) -> None:
        for cluster in self.clusters:
            believed = [
                p for peer in self.peers.values() for p in peer.believed() if p[0] == cluster.label
            ]
            assert len(believed) == len(set(believed)), "two clients believe in one permit"
            cluster.check_limit(len(believed))
        for peer in self.peers.values():
            in_use = {permit for permit in peer.callers.values() if permit is not None}
            assert set(peer.core.held) <= in_use, "a permit that no caller has is not kept"
            waiting = [number for number, permit in peer.callers.items() if permit is None]
            assert set(waiting) == set(peer.core._waiting), "a caller waits as long as its waiter"
            for permit in peer.believed():
                self.check_lease(peer, permit)

    def check_lease(self, peer: Peer, permit: str) -> None:
        """No client believes in a permit for longer than the limiter does, or than a successor
        waits for a report."""
        core = next(cluster.core for cluster in self.clusters if cluster.label == permit[0])
        until, known = peer.core.held[permit], core._permits.get(permit)
        if known is not None:
            assert known.client.name == peer.name
            assert known.expires >= until, (
                "the client believes in a permit for longer than the limiter"
            )
        else:
            assert core.learning_at(self.now), "the limiter has forgotten a permit that is in use"
            assert peer.name in core._unreported
            assert core._learning_until >= until

    def come_to_rest(self) -> None:
        """From now on nothing goes wrong.

        Everything that was lost is made up for, and no caller waits for ever.
        """
        for peer in self.peers.values():
            peer.stalled = False
        self._deliver_everything()
        self._lose_what_is_pending()
        self.now += LAST_RETRY
        for _ in range(ROUNDS_TO_AGREE):
            self.run_the_network()
        for cluster in self.clusters:
            self._check_agreement(cluster)

        in_time = {name: self._held_for_long(peer) for name, peer in self.peers.items()}
        longest = max(cluster.core.longest_lease(self.now) for cluster in self.clusters)
        for _ in range(int(2 * longest / STRIDE) + 2):
            self.live_on()
        for name, peer in self.peers.items():
            assert in_time[name] <= set(peer.believed()), "permits in use are renewed"
        for cluster in self.clusters:
            self._check_the_dead(cluster)

        self._finish_all_callers()
        self.run_the_network()
        assert [cluster.core.in_use for cluster in self.clusters] == [0, 0]

    def _deliver_everything(self) -> None:
        """Deliver all requests and replies that are on their way."""
        while self.requests or self.replies:
            while self.replies:
                peer, request, reply = self.replies.pop(0)
                peer.receive(request, reply)
            if self.requests:
                self._deliver(0, again=False)

    def _lose_what_is_pending(self) -> None:
        """Tell each client that the requests without a reply are lost."""
        for peer in self.peers.values():
            for pending in (peer.core._in_flight, peer.core._polling):
                if pending is not None:
                    peer.core.lose(self.now, pending[0])

    def _check_agreement(self, cluster: Cluster) -> None:
        """Both sides know which permits the clients of a cluster hold.

        Not of a client that was forgotten meanwhile: a late message of such a one can cost a
        permit, for a lease at most.
        """
        epochs = {
            client.name: client.epoch
            for client in cluster.core._clients.values()
            if client.attached
        }
        here = [
            peer
            for peer in self.peers.values()
            if peer.cluster is cluster
            and peer.core._connection.attached
            and peer.core._connection.epoch == epochs.get(peer.name)
        ]
        names = {peer.name for peer in here}
        out = {
            permit for permit, known in cluster.core._permits.items() if known.client.name in names
        }
        sure: set[str] = set()
        known: set[str] = set()
        for peer in here:
            sure.update(peer.believed())
            known.update(peer.core.held)
        assert sure <= out <= known, f"both sides know who holds what: {sure}, {out}, {known}"

    def _held_for_long(self, peer: Peer) -> set[str]:
        """Return the permits that have at least half of their lease left."""
        soon = self.now + peer.core._connection.lease / 2
        return {permit for permit, until in peer.core.held.items() if until > soon}

    def _check_the_dead(self, cluster: Cluster) -> None:
        """The dead hold nothing.

        They lose their places in the queue after a lease, and what they were granted until then
        one later.
        """
        here = {peer.name for peer in self.peers.values() if peer.cluster is cluster}
        snapshot = cluster.core.snapshot(self.now)
        assert {*snapshot.holders, *snapshot.waiters} <= here, "the dead hold nothing"

    def _finish_all_callers(self) -> None:
        """As callers finish, all who wait are served.

        That is at the pace of the network and not of leases.
        """
        for _ in range(ROUNDS_TO_SERVE):
            if not any(peer.callers for peer in self.peers.values()):
                return
            for peer in self.peers.values():
                served = [number for number, permit in peer.callers.items() if permit is not None]
                for number in served:
                    peer.finish(number)
            self.run_the_network()
        assert not any(peer.callers for peer in self.peers.values()), "a waiter was forgotten"

    def live_on(self) -> None:
        self.now += STRIDE
        for cluster in self.clusters:
            cluster.core.tick(self.now)
        self.run_the_network()

    def run_the_network(self) -> None:
        for _ in range(2):
            for peer in self.peers.values():
                self._send(peer, hurry=True)
            requests, self.requests = self.requests, []
            for peer, cluster, request in requests:
                peer.receive(request, cluster.handle(request))
            self.check()

    def _peer(self, pick: int) -> Peer:
        return _nth(list(self.peers.values()), pick)

    def _cluster(self, pick: int) -> Cluster:
        return _nth((self.clusters[0], self.clusters[0], self.clusters[1]), pick)

    def _deliver(self, index: int, *, again: bool) -> None:
        peer, cluster, request = _pick(self.requests, index, again=again)
        if isinstance(request, Poll) and not cluster.core.has_update(request) and index % 3:
            self.requests.append(
                (peer, cluster, request)
            )  # a long poll stays until there is an update
            return
        self.replies.append((peer, request, cluster.handle(request)))


ACTIONS = {
    "acquire": 5,
    "finish": 5,
    "send": 12,
    "deliver": 12,
    "answer": 12,
    "lose": 2,
    "pause": 3,
    "wait": 3,
    "stall": 1,
    "die": 1,
    "change_session": 1,
    "resize": 1,
    "change_lease": 1,
    "restart": 2,
    "replace": 1,
}
"""How often each action is drawn, relative to the others."""
WIRE = {**ACTIONS, "lose": 3, "pause": 6, "wait": 1, "resize": 2} | dict.fromkeys(
    ("stall", "die", "change_session", "change_lease", "restart", "replace"), 0
)
"""The same while only messages go astray and the limit changes."""

NEAR = {"acquire": 1, "take": 8, "finish": 2, "give_back": 8}
"""What happens instead in the process of the limiter, where a caller that finds a free permit
takes it."""


def _nth(items: Any, pick: int) -> Any:
    return items[pick % len(items)]


def _pick(items: list[Any], pick: int, *, again: bool) -> Any:
    index = pick % len(items)
    return items[index] if again else items.pop(index)
