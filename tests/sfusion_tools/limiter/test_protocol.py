"""The limiter's protocol keeps its promises in a world where everything can go wrong, and needs
each of its rules."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sfusion_tools.limiter.client_core import ClientCore
from sfusion_tools.limiter.messages import Attach, Batch, LimiterRecord, LimiterReply, Poll
from sfusion_tools.limiter.record import learning_of
from tests.sfusion_tools.limiter.protocol_world import ACTIONS, NEAR, WIRE, WatchedCore, World

PICKS = 60
STEPS = 80
EPISODES = int(os.environ.get("SFUSION_PROTOCOL_EPISODES", "40"))
"""How many episodes are played; set it to some thousands after a change of the protocol."""
LONGEST_SEARCH = 3000
FOCUS = {
    "AppliesLateFarewells": {"die": 5},
    "AnswersCopiesOfPollsWithNews": {"from": 150},
    "AnswersPollsOfEarlierAttachments": {"lose": 8, "pause": 10, "from": 820},
    "AcceptsRepliesToEarlierPolls": {
        "clients": 2,
        "acquire": 9,
        "answer": 8,
        "lose": 8,
        "pause": 14,
        "wait": 0,
        "resize": 6,
        "from": 2980,
    },
    "FollowsAnyRun": {"resize": 12, "acquire": 10, "finish": 4, "clients": 1, "from": 400},
    "ForgetsEpochs": {"restart": 5, "from": 90},
    "TakesItsPermitsToOtherClusters": {"change_session": 5, "restart": 5},
    "GrantsExpireBeforeTheyAreSent": {
        "lose": 8,
        "pause": 10,
        "clients": 2,
        "change_lease": 4,
        "from": 500,
    },
    "LearnedPermitsGetTheNewLease": {"change_lease": 4, "replace": 4},
    "TakesAboveTheLimit": NEAR,
    "TakesBeforeItsOwnCallers": NEAR | {"from": 132},
    "CountsReleases": {"from": 37},
    "NeverExpires": {"from": 28},
    "KeepsTheDeadInLine": {"from": 27},
    "BelievesReportsForEver": {"from": 32},
    "ForgetsTheOldLease": {"from": 23},
    "ShortensLeasesThatWereGiven": {"from": 23},
    "JudgesSilenceByTheNewLease": {"from": 45},
    "AppliesCopiesOfTheSameAttachment": {"from": 78},
    "AnswersCopiesOfBatchesWithNothing": {"from": 22},
    "AppliesBatchesOfEarlierAttachments": {"from": 78},
    "SendsGrantsOfTheLastAttachment": {"from": 70},
    "HandsOnWhatMayBeLost": {"from": 74},
    "KeepsLapsedPermits": {"from": 51},
    "learns_for_the_new_lease": {"from": 23},
}
"""What happens more often, among how many clients, and from which seed on, where the rule is rarely
needed."""


def play(seed: int, focus: dict[str, int] | None = None, **removed: Any) -> int:
    """Play one episode; return the number of steps."""
    weights = (ACTIONS if seed % 2 else WIRE) | (focus or {})
    clients = "abcd"[: weights.pop("clients", 4)]
    draw = random.Random(seed)
    world = World(**removed, limit=1 + seed % 5 % 3, clients=clients, one_share=seed % 3 > 0)
    for action in draw.choices(list(weights), list(weights.values()), k=STEPS):
        world.act(action, draw.randrange(PICKS))
    world.come_to_rest()
    return world.steps


def test_the_promises_hold_in_every_episode(record_property: Callable[[str, object], None]) -> None:
    steps = sum(play(seed) for seed in range(EPISODES))
    record_property("steps", steps)
    print(f"{steps} steps")
    assert steps == EPISODES * STEPS


def test_the_promises_hold_where_free_permits_are_taken_without_a_message() -> None:
    for seed in range(EPISODES):
        play(seed, NEAR)


class ProtocolMachine(RuleBasedStateMachine):
    """The same world, driven by Hypothesis, which shrinks what it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(limit=st.integers(1, 3), one_share=st.booleans())
    def begin(self, limit: int, one_share: bool) -> None:
        self.world = World(limit=limit, one_share=one_share)

    @rule(
        action=st.sampled_from([name for name, weight in ACTIONS.items() for _ in range(weight)]),
        pick=st.integers(0, PICKS - 1),
    )
    def act(self, action: str, pick: int) -> None:
        self.world.act(action, pick)

    def teardown(self) -> None:
        self.world.come_to_rest()


ProtocolMachine.TestCase.settings = settings(
    max_examples=max(10, EPISODES // 4), stateful_step_count=50, print_blob=False
)
TestProtocolMachine = ProtocolMachine.TestCase


# What the limiter does without one of its rules. Each class removes one.


class CountsReleases(WatchedCore):
    def _release(self, client: Any, permit: str, how: str = "released") -> bool:
        if permit not in client.permits and self._permits:
            permit, held = next(iter(self._permits.items()))
            client = held.client
        return super()._release(client, permit, how)


class NeverExpires(WatchedCore):
    def _next_expiry(self) -> float:
        return math.inf


class KeepsTheDeadInLine(WatchedCore):
    def _drop_waiters(self, client: Any) -> None:
        if self.detaching:
            super()._drop_waiters(client)

    def _expire(self, now: float) -> None:
        self._no_death_before = math.inf
        super()._expire(now)


class GrantsBeforeItHasLearned(WatchedCore):
    def tick(self, now: float) -> None:
        self._expire(now)
        self._grant(now)


class LearnsForEver(WatchedCore):
    def learning_at(self, now: float) -> bool:
        self._learning_until = math.inf
        return super().learning_at(now)


class LearnsNothing(WatchedCore):
    def _hold(self, now: float, client: Any, permit: str, *waiter: Any) -> None:
        if not self.learning_at(now):
            super()._hold(now, client, permit, *waiter)


class BelievesReportsForEver(WatchedCore):
    def _attach(self, now: float, client: Any, batch: Batch, attach: Attach, *rest: Any) -> None:
        for permit in attach.held:
            if permit not in self._permits:
                self._hold(now, client, permit)
        super()._attach(now, client, batch, attach, *rest)


class LearnedPermitsGetTheNewLease(WatchedCore):
    def _hold(self, now: float, client: Any, permit: str, *waiter: Any) -> None:
        until, self._learning_until = (
            self._learning_until,
            now + 1e-9 if self.learning_at(now) else now,
        )
        super()._hold(now, client, permit, *waiter)
        self._learning_until = until


class GrantsExpireBeforeTheyAreSent(WatchedCore):
    def _hold(self, now: float, client: Any, permit: str, *waiter: Any) -> None:
        known, client.lease = client.lease, self.settings.lease
        super()._hold(now, client, permit, *waiter)
        client.lease = known


class ForgetsTheOldLease(WatchedCore):
    def longest_lease(self, now: float) -> float:
        return self.settings.lease


class ShortensLeasesThatWereGiven(WatchedCore):
    def configure(self, now: float, settings: Any) -> None:
        super().configure(now, settings)
        for permit in self._permits.values():
            permit.expires = min(permit.expires, now + settings.lease)


class JudgesSilenceByTheNewLease(WatchedCore):
    def configure(self, now: float, settings: Any) -> None:
        super().configure(now, settings)
        for client in self._clients.values():
            client.lease = settings.lease
        self._no_death_before = now


class ForgetsWhoHasNotReported(WatchedCore):
    def clients(self) -> dict[str, int]:
        return {
            name: epoch for name, epoch in super().clients().items() if name not in self._unreported
        }


class ForgetsEpochs(WatchedCore):
    def clients(self) -> dict[str, int]:
        return dict.fromkeys(super().clients(), 0)


class AppliesCopies(WatchedCore):
    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        client = self._clients.get(batch.client)
        if client is not None:
            client.last_batch = 0
        return super().exchange(now, batch)


class AppliesLateFarewells(WatchedCore):
    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        return super().exchange(now, batch._replace(number=0) if batch.detach else batch)


class AppliesCopiesOfTheSameAttachment(WatchedCore):
    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        client = self._clients.get(batch.client)
        if client is not None and batch.attach is None and client.epoch == batch.epoch:
            client.last_batch = 0
        return super().exchange(now, batch)


class AnswersCopiesOfBatchesWithNothing(WatchedCore):
    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        client = self._clients.get(batch.client)
        if client is not None:
            client.last_batch_reply = None
        return super().exchange(now, batch)


class AnswersCopiesOfPollsWithNews(WatchedCore):
    def poll(self, now: float, poll: Poll) -> LimiterReply:
        client = self._clients.get(poll.client)
        if client is not None and client.last_poll == poll.number:
            client.last_poll = 0
        return super().poll(now, poll)


class AppliesBatchesOfEarlierAttachments(WatchedCore):
    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        client = self._clients.get(batch.client)
        if client is not None and client.attached and batch.attach is None and not batch.detach:
            batch = batch._replace(
                epoch=client.epoch, number=max(batch.number, client.last_batch + 1)
            )
        return super().exchange(now, batch)


class AnswersPollsOfEarlierAttachments(WatchedCore):
    def poll(self, now: float, poll: Poll) -> LimiterReply:
        client = self._clients.get(poll.client)
        return super().poll(now, poll._replace(epoch=client.epoch) if client is not None else poll)


class KeepsGrantsThatWereLost(WatchedCore):
    def _attach(self, now: float, client: Any, batch: Batch, attach: Attach, *rest: Any) -> None:
        held = (*attach.held, *(permit for permit in client.permits if permit not in attach.held))
        super()._attach(now, client, batch, attach._replace(held=held), *rest)


class SendsGrantsOfTheLastAttachment(WatchedCore):
    def _attach(self, now: float, client: Any, *rest: Any) -> None:
        grants = list(client.grants)
        super()._attach(now, client, *rest)
        client.grants.extend(grants)


class RenewsAnything(WatchedCore):
    def _renew(self, now: float, client: Any, permit: str) -> bool:
        super()._renew(now, client, permit)
        return True


class HandsOnFromAnywhere(WatchedCore):
    def _run(self, client: Any) -> int:
        return (
            max(client.tickets.values(), default=0)
            if super()._run(client) or self._free() >= 0
            else 0
        )


class HandsOnAboveTheLimit(WatchedCore):
    def _free(self) -> int:
        return max(super()._free(), 0)


class HandsOnWhileLearning(WatchedCore):
    def _run(self, client: Any) -> int:
        learning, self._learning = self._learning, False
        run = super()._run(client)
        self._learning = learning
        return run


class HandsOnPastOtherShares(WatchedCore):
    def _run(self, client: Any) -> int:
        if self._learning or self._free() < 0:
            return 0
        return (
            max(client.tickets.values(), default=0)
            if len(client.tickets) == len(client.share.waiters)
            else 0
        )


class TakesAboveTheLimit(WatchedCore):
    def take(self, now: float, name: str, epoch: int, number: int) -> tuple[str, float] | None:
        settings, self.settings = self.settings, replace(self.settings, rate_limit=99)
        try:
            return super().take(now, name, epoch, number)
        finally:
            self.settings = settings


class ServesTheLongestQueueFirst(WatchedCore):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        shares: Any = self._shares
        shares.next = lambda width: max(
            (s for s in shares if s.waiters), key=lambda s: len(s.waiters), default=None
        )


class ServesTheLastComer(WatchedCore):
    def _enqueue(self, client: Any, number: int, ticket: int) -> None:
        super()._enqueue(client, number, ticket)
        client.share.waiters.move_to_end(ticket, last=False)


class WaitersLoseTheirPlaces(WatchedCore):
    def _enqueue(self, client: Any, number: int, ticket: int) -> None:
        super()._enqueue(
            client, number, ticket if ticket == self._next_ticket - 1 else self._take_ticket()
        )


# The same for clients.


class UsesGrantsThatCameTooLate(ClientCore):
    def receive(self, now: float, request: Any, reply: LimiterReply) -> Any:
        pending = self._in_flight if isinstance(request, Batch) else self._polling
        if pending is not None and reply.grants and now >= pending[1] + reply.lease:
            now = pending[1]
        return super().receive(now, request, reply)


class CountsLeasesFromTheReply(ClientCore):
    def receive(self, now: float, request: Any, reply: LimiterReply) -> Any:
        for attribute in ("_in_flight", "_polling"):
            pending = getattr(self, attribute)
            if pending is not None and pending[0] is request:
                setattr(self, attribute, (request, now))
        return super().receive(now, request, reply)


class DoesNotAttachAgain(ClientCore):
    def receive(self, now: float, request: Any, reply: LimiterReply) -> Any:
        return super().receive(now, request, reply._replace(unknown=False))


class TrustsTheConnectionAfterALoss(ClientCore):
    def lose(self, now: float, request: Any) -> None:
        attached = self._connection.attached
        super().lose(now, request)
        self._connection.attached = attached


class AcceptsRepliesToEarlierPolls(ClientCore):
    def receive(self, now: float, request: Any, reply: LimiterReply) -> Any:
        if isinstance(request, Poll) and self._polling is not None and self._polling[0] is request:
            request = request._replace(epoch=self._connection.epoch)
        return super().receive(now, request, reply)


class AcceptsRepliesItHasGivenUp(ClientCore):
    def _finish(self, request: Any) -> float | None:
        sent = super()._finish(request)
        return self.last_sent if sent is None else sent

    last_sent = 0.0

    def next_batch(self, now: float) -> Batch | None:
        self.last_sent = now
        return super().next_batch(now)


class FollowsAnyRun(ClientCore):
    def receive(self, now: float, request: Any, reply: LimiterReply) -> Any:
        if not reply.unknown and reply.version:
            self._connection.version = 0
        return super().receive(now, request, reply)


class HandsOnWhatMayBeLost(ClientCore):
    def release(self, now: float, permit: str, **report: bool) -> int | None:
        if permit in self.held:
            self.held[permit], until = math.inf, self.held[permit]
            heir = super().release(now, permit, **report)
            if permit in self.held:
                self.held[permit] = until
            return heir
        return super().release(now, permit, **report)


class ReportsNoPermits(ClientCore):
    def _make_batch(self) -> Batch | None:
        batch = super()._make_batch()
        return batch and (
            batch if batch.attach is None else batch._replace(attach=batch.attach._replace(held=()))
        )


class KeepsLapsedPermits(ClientCore):
    def _attached(self, now: float, reply: LimiterReply, lost: list[str]) -> None:
        super()._attached(-math.inf, reply, lost)


class TakesItsPermitsToOtherClusters(ClientCore):
    def change_session(self) -> None:
        pass


class ReportsNoTickets(ClientCore):
    def _make_batch(self) -> Batch | None:
        batch = super()._make_batch()
        if batch is None or batch.attach is None:
            return batch
        return batch._replace(
            attach=batch.attach._replace(waiting=tuple((n, None) for n, _ in batch.attach.waiting))
        )


class RenewsNothing(ClientCore):
    def renew(self, now: float) -> None:
        self.renew_at = now + 1.0


class RenewsAtTheOldPace(ClientCore):
    def _plan_renewal(self, now: float) -> None:
        if self.renew_at == math.inf:
            super()._plan_renewal(now)


class KeepsGrantsOfCancelledWaiters(ClientCore):
    def receive(self, now: float, request: Any, reply: LimiterReply) -> Any:
        wanted = tuple(grant for grant in reply.grants if grant[0] in self._waiting)
        for _, permit in set(reply.grants) - set(wanted):
            self.held[permit] = now
        return super().receive(now, request, reply._replace(grants=wanted))


class SendsBatchesWithoutWaiting(ClientCore):
    def next_batch(self, now: float) -> Batch | None:
        self._in_flight = None
        return super().next_batch(now)


class TakesBeforeItsOwnCallers(ClientCore):
    def take(self, now: float, ask: Any) -> str | None:
        waiting, self._waiting = self._waiting, {}
        try:
            return super().take(now, ask)
        finally:
            self._waiting = waiting


# And for what a limiter leaves to its successor.


def written_after_the_fact(
    actor: str, settings: Any, clients: Any, lease: float, attaching: Any = None
) -> LimiterRecord:
    return LimiterRecord.of(actor, settings, clients, lease)


def strangers_do_not_learn(
    record: LimiterRecord | None, settings: Any, since_removal: float | None
) -> Any:
    return learning_of(None, settings, since_removal)


def learns_for_the_new_lease(
    record: LimiterRecord | None, settings: Any, since_removal: float | None
) -> Any:
    return learning_of(record, settings, since_removal)[0], settings.lease


def nothing_to_learn_after_removal(
    record: LimiterRecord | None, settings: Any, since_removal: float | None
) -> Any:
    return learning_of(None if since_removal is not None else record, settings, None)


CORES = [
    CountsReleases,
    NeverExpires,
    KeepsTheDeadInLine,
    GrantsBeforeItHasLearned,
    LearnsForEver,
    LearnsNothing,
    BelievesReportsForEver,
    LearnedPermitsGetTheNewLease,
    GrantsExpireBeforeTheyAreSent,
    ForgetsTheOldLease,
    ShortensLeasesThatWereGiven,
    JudgesSilenceByTheNewLease,
    ForgetsWhoHasNotReported,
    ForgetsEpochs,
    AppliesCopies,
    AppliesLateFarewells,
    AppliesCopiesOfTheSameAttachment,
    AnswersCopiesOfBatchesWithNothing,
    AnswersCopiesOfPollsWithNews,
    AppliesBatchesOfEarlierAttachments,
    AnswersPollsOfEarlierAttachments,
    KeepsGrantsThatWereLost,
    SendsGrantsOfTheLastAttachment,
    RenewsAnything,
    HandsOnFromAnywhere,
    HandsOnAboveTheLimit,
    HandsOnWhileLearning,
    HandsOnPastOtherShares,
    TakesAboveTheLimit,
    ServesTheLongestQueueFirst,
    ServesTheLastComer,
    WaitersLoseTheirPlaces,
]
CLIENTS = [
    UsesGrantsThatCameTooLate,
    CountsLeasesFromTheReply,
    DoesNotAttachAgain,
    TrustsTheConnectionAfterALoss,
    AcceptsRepliesToEarlierPolls,
    AcceptsRepliesItHasGivenUp,
    FollowsAnyRun,
    HandsOnWhatMayBeLost,
    ReportsNoPermits,
    KeepsLapsedPermits,
    TakesItsPermitsToOtherClusters,
    ReportsNoTickets,
    RenewsNothing,
    RenewsAtTheOldPace,
    KeepsGrantsOfCancelledWaiters,
    SendsBatchesWithoutWaiting,
    TakesBeforeItsOwnCallers,
]
SUCCESSIONS = [strangers_do_not_learn, learns_for_the_new_lease, nothing_to_learn_after_removal]
REMOVALS: list[tuple[str, Any]] = [
    *(("core_class", one) for one in CORES),
    *(("client_class", one) for one in CLIENTS),
    ("record_of", written_after_the_fact),
    *(("learning_of", one) for one in SUCCESSIONS),
]


@pytest.mark.parametrize(("part", "replaced"), REMOVALS, ids=[one.__name__ for _, one in REMOVALS])
def test_without_this_rule_a_promise_is_broken(part: str, replaced: Any) -> None:
    """The table of removals: one rule of the protocol is missing in each row."""
    focus = dict(FOCUS.get(replaced.__name__, {}))
    first = focus.pop("from", 0)
    for seed in range(first, first + LONGEST_SEARCH):
        try:
            play(seed, focus, **{part: replaced})
        except AssertionError:
            return
    pytest.fail("every promise held without this rule")
