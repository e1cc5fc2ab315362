"""The rules of the limiter, one promise per test; the test sets the time."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable

import pytest

from sfusion_tools.errors import ConfigError
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply, Poll
from sfusion_tools.limiter.settings import LimiterSettings
from sfusion_tools.limiter.succession import LimiterRecord, learning_of


class Bench:
    """A core and its clock."""

    def __init__(self, **settings: object) -> None:
        self.now = 100.0
        self.core = LimiterCore(LimiterSettings(**settings), self.now)  # type: ignore[arg-type]
        self.granted: list[tuple[str, int, str]] = []
        self.numbers = itertools.count(1)
        self.epochs: dict[str, int] = {}

    def attach(self, client: str, held: tuple[str, ...] = (), waiting: tuple = (), **share: object) -> LimiterReply:
        attach = Attach(held, waiting, **share)  # type: ignore[arg-type]
        reply = self.deliver(Batch(client, attach, number=next(self.numbers)))
        self.epochs[client] = reply.version
        return reply

    def send(self, client: str, **batch: object) -> LimiterReply:
        return self.deliver(self.batch(client, **batch))

    def batch(self, client: str, **batch: object) -> Batch:
        return Batch(client, epoch=self.epochs.get(client, 0), number=next(self.numbers), **batch)  # type: ignore[arg-type]

    def deliver(self, batch: Batch) -> LimiterReply:
        return self._note(batch.client, self.core.exchange(self.now, batch))

    def poll(self, client: str, epoch: int | None = None) -> LimiterReply:
        poll = Poll(client, self.epochs[client] if epoch is None else epoch, next(self.numbers), 1.0)
        return self._note(client, self.core.poll(self.now, poll))

    def _note(self, client: str, reply: LimiterReply) -> LimiterReply:
        self.granted += [(client, number, permit) for number, permit in reply.grants]
        return reply


@pytest.fixture
def bench() -> Bench:
    bench = Bench(rate_limit=2, lease=10)
    bench.attach("a")
    bench.attach("b")
    return bench


@pytest.mark.parametrize("limit", [0, -1, 1.5, "10", None, True, math.inf])
def test_an_invalid_rate_limit_is_refused_at_construction(limit: object) -> None:
    with pytest.raises(ConfigError, match="rate_limit must be a whole number of at least 1, found"):
        LimiterSettings(limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"lease": 0}, {"lease": -1}, {"lease": "x"}, {"per_second": 0}, {"burst": 3}])
def test_other_invalid_settings_are_refused_at_construction(settings: dict) -> None:
    with pytest.raises(ConfigError):
        LimiterSettings(**settings)


class TestTakingAFreePermit:
    """What a client in the limiter's process does without messages."""

    def take(self, bench: Bench, client: str, number: int = 90) -> str | None:
        granted = bench.core.take(bench.now, client, bench.epochs[client], number)
        return None if granted is None else granted[0]

    def give_back(self, bench: Bench, client: str, permit: str | None, **how: bool) -> bool:
        assert permit is not None
        return bench.core.give_back(bench.now, client, bench.epochs[client], permit, **how)

    def test_there_are_as_many_as_the_limit(self, bench: Bench) -> None:
        first = self.take(bench, "a")
        assert {first, self.take(bench, "b"), None} == {*bench.core._permits, self.take(bench, "a")}
        assert self.give_back(bench, "a", first)
        assert bench.core.snapshot(bench.now).holders == {"b": 1}

    def test_nobody_is_overtaken_who_was_told_to_queue(self, bench: Bench) -> None:
        held = [self.take(bench, "a", number) for number in (1, 2)]
        assert self.take(bench, "b", 1) is None
        assert self.give_back(bench, "a", held[0])
        assert self.take(bench, "a", 3) is None, "the message of b is on its way"
        assert bench.send("b", acquire=(1,)).grants
        assert self.give_back(bench, "a", held[1])
        assert bench.send("a", cancel=(3,)).grants == ()
        assert self.take(bench, "b", 2)

    def test_nobody_waits_for_a_client_that_died_before_its_message_came(self, bench: Bench) -> None:
        held = self.take(bench, "a"), self.take(bench, "a")
        assert self.take(bench, "b") is None
        bench.now += 9
        bench.send("a", renew=held)
        bench.now += 9
        assert self.give_back(bench, "a", held[0])
        assert self.take(bench, "a")

    def test_nobody_is_overtaken_who_waits_for_a_token(self) -> None:
        bench = Bench(rate_limit=9, per_second=1, burst=1)
        bench.attach("a")
        bench.attach("b")
        assert self.take(bench, "a")
        assert not bench.send("a", acquire=(1,)).grants
        bench.now += 1
        assert self.take(bench, "b") is None
        bench.core.tick(bench.now)
        assert bench.poll("a").grants

    def test_every_permit_costs_a_token(self) -> None:
        bench = Bench(rate_limit=9, per_second=1, burst=2)
        bench.attach("a")
        assert [bool(self.take(bench, "a")) for _ in range(3)] == [True, True, False]

    def test_one_that_returns_goes_to_who_waits(self, bench: Bench) -> None:
        held = [self.take(bench, "a", number) for number in (1, 2)]
        bench.send("b", acquire=(1,))
        bench.core.take_updated()
        assert self.give_back(bench, "a", held[0])
        assert bench.core.take_updated() == ["b"]
        assert bench.poll("b").grants

    def test_an_adaptive_limit_follows_how_its_attempt_ended(self) -> None:
        bench = Bench(rate_limit=10, adaptive=True)
        bench.attach("a")
        assert self.give_back(bench, "a", self.take(bench, "a"), throttled=True)
        assert bench.core.width == 7

    def test_one_whose_lease_ended_is_not_released_again(self, bench: Bench) -> None:
        late = self.take(bench, "a")
        bench.now += 9
        bench.send("a")
        bench.now += 9
        assert self.give_back(bench, "a", late)
        assert (bench.core.snapshot(bench.now).expired, bench.core.snapshot(bench.now).fenced) == (1, 1)

    def test_a_client_that_has_to_attach_gets_none_and_returns_none(self, bench: Bench) -> None:
        held = self.take(bench, "a")
        bench.epochs["a"] -= 1
        assert self.take(bench, "a") is None
        assert not self.give_back(bench, "a", held)
        assert bench.core.in_use == 1
        assert self.take(bench, "b"), "and nobody waits for its message"

    def test_none_is_free_while_a_successor_learns(self, bench: Bench) -> None:
        bench.core = LimiterCore(LimiterSettings(2, 10), bench.now, incarnation="1", learn_from={"a": 0, "b": 0})
        bench.attach("a")
        assert self.take(bench, "a") is None
        bench.attach("b")
        assert self.take(bench, "a")

    def test_its_turn_counts_for_its_share_like_one_of_a_caller_that_asks_with_a_message(self) -> None:
        def turns(*takes: str) -> list[float]:
            bench = Bench(rate_limit=9)
            bench.attach("a", share="x", weight=4.0)
            bench.attach("b", share="y", weight=0.5)
            for number, client in enumerate("aabaab"):
                assert self.take(bench, client) if client in takes else bench.send(client, acquire=(number,)).grants
            return [bench.core._shares._turns, *(share.turns for share in bench.core._shares)]

        assert turns("a") == turns("b") == turns("a", "b") == turns()


def test_permits_are_granted_up_to_the_limit_and_not_beyond(bench: Bench) -> None:
    assert len(bench.send("a", acquire=(1, 2, 3)).grants) == 2
    snapshot = bench.core.snapshot(bench.now)
    assert (snapshot.in_use, snapshot.waiting) == (2, 1)


def test_grants_are_first_come_first_served_across_clients(bench: Bench) -> None:
    permits = [permit for _, permit in bench.send("a", acquire=(1, 2)).grants]
    bench.granted.clear()
    for number, client in enumerate("abbaab", start=10):
        bench.send(client, acquire=(number,))
    bench.send("a", release=(permits.pop(),))  # a single place from here on, so that the order of grants is visible
    order = []
    for _ in range(6):
        for client in "ab":
            bench.poll(client)
        ((client, number, permit),) = bench.granted
        bench.granted.clear()
        order.append((client, number))
        bench.send(client, release=(permit,))
    assert order == [("a", 10), ("b", 11), ("b", 12), ("a", 13), ("a", 14), ("b", 15)]


def test_a_release_of_an_expired_permit_is_fenced(bench: Bench) -> None:
    ((_, permit),) = bench.send("a", acquire=(1,)).grants
    bench.now += 10
    bench.attach("b")
    assert len(bench.send("b", acquire=(1, 2)).grants) == 2
    bench.attach("a")
    assert bench.send("a", release=(permit,)).lost == (permit,)
    snapshot = bench.core.snapshot(bench.now)
    assert (snapshot.in_use, snapshot.fenced, snapshot.expired) == (2, 1, 1)


def test_a_permit_released_twice_frees_only_one_place(bench: Bench) -> None:
    (_, permit), _ = bench.send("a", acquire=(1, 2)).grants
    bench.send("b", acquire=(1, 2))
    bench.send("a", release=(permit,))
    bench.send("a", release=(permit,))
    assert bench.core.snapshot(bench.now).in_use == 2
    assert len(bench.poll("b").grants) == 1


def test_a_permit_of_another_client_cannot_be_released(bench: Bench) -> None:
    ((_, permit),) = bench.send("a", acquire=(1,)).grants
    assert bench.send("b", release=(permit,)).lost == (permit,)
    assert bench.core.snapshot(bench.now).in_use == 1


def test_renewal_keeps_a_permit_alive(bench: Bench) -> None:
    ((_, permit),) = bench.send("a", acquire=(1,)).grants
    for _ in range(5):
        bench.now += 9
        assert bench.send("a", renew=(permit,)).lost == ()
    assert bench.core.snapshot(bench.now).in_use == 1
    bench.now += 10
    assert bench.core.snapshot(bench.now).in_use == 0


def test_the_lease_counts_from_when_the_grant_is_sent(bench: Bench) -> None:
    ((_, held), _) = bench.send("b", acquire=(1, 2)).grants
    bench.send("a", acquire=(1,))
    bench.send("b", release=(held,))
    bench.now += 9
    ((_, permit),) = bench.poll("a").grants
    bench.now += 9
    assert bench.send("a", renew=(permit,)).lost == ()


def test_permits_never_sent_to_a_dead_client_return_with_its_death(bench: Bench) -> None:
    """Otherwise a node that dies with holders and waiters would block permits for two leases."""
    ((_, returned), (_, kept)) = bench.send("b", acquire=(1, 2)).grants
    bench.send("a", acquire=(1, 2))
    bench.now += 9
    bench.send("b", release=(returned,), renew=(kept,))  # granted to "a", which has been silent for nine seconds
    assert bench.core.snapshot(bench.now).holders == {"a": 1, "b": 1}
    bench.now += 1
    bench.send("b", acquire=(3,))
    assert bench.core.snapshot(bench.now).holders == {"b": 2}


def test_answering_a_poll_is_no_sign_of_life(bench: Bench) -> None:
    bench.send("a", acquire=(1, 2))
    bench.send("b", acquire=(1, 2))
    poll = Poll("b", bench.epochs["b"], next(bench.numbers), 5.0)
    bench.core.heartbeat(bench.now, poll)
    bench.now += 5
    bench.core.poll(bench.now, poll, came=bench.now - 5)
    bench.now += 5
    assert bench.core.snapshot(bench.now).waiters == {}


def test_only_the_permits_named_are_renewed(bench: Bench) -> None:
    (_, kept), (_, forgotten) = bench.send("a", acquire=(1, 2)).grants
    bench.now += 6
    bench.send("a", renew=(kept,))
    bench.now += 6
    assert bench.send("a", renew=(kept, forgotten)).lost == (forgotten,)


def test_a_dead_waiter_does_not_block_the_queue(bench: Bench) -> None:
    """verl defect (k): all waiters of a dead client leave the queue, and the next ones are served."""
    held = bench.send("b", acquire=(1, 2)).grants
    bench.send("a", acquire=(1, 2, 3))
    bench.send("b", acquire=(3,))
    bench.now += 5
    bench.send("b", renew=tuple(p for _, p in held))
    bench.now += 5  # a has been silent for a lease
    reply = bench.send("b", release=(held[0][1],))
    assert [number for number, _ in reply.grants] == [3]
    assert bench.core.snapshot(bench.now).dropped == 3


def test_a_client_that_detaches_leaves_nothing_behind(bench: Bench) -> None:
    bench.send("a", acquire=(1, 2, 3))
    bench.send("a", detach=True)
    snapshot = bench.core.snapshot(bench.now)
    assert (snapshot.in_use, snapshot.waiting, snapshot.holders) == (0, 0, {})


def test_a_cancelled_waiter_leaves_the_queue(bench: Bench) -> None:
    held = bench.send("a", acquire=(1, 2)).grants
    bench.send("b", acquire=(1, 2))
    bench.send("b", cancel=(1,))
    bench.send("a", release=(held[0][1],))
    assert [number for number, _ in bench.poll("b").grants] == [2]


def test_cancelling_a_waiter_releases_no_permit(bench: Bench) -> None:
    """verl defect (f): a cancelled acquire released a permit it never had, and a limit of 1 let 5 through."""
    bench.send("a", acquire=(1, 2))
    for number in range(10, 15):
        bench.send("b", acquire=(number,))
        bench.send("b", cancel=(number,))
    assert bench.send("b", acquire=(99,)).grants == ()
    assert bench.core.snapshot(bench.now).in_use == 2


def test_raising_the_limit_serves_waiters(bench: Bench) -> None:
    bench.send("a", acquire=(1, 2))
    bench.send("b", acquire=(1, 2, 3))
    bench.core.configure(bench.now, LimiterSettings(4, lease=10))
    assert "b" in bench.core.take_updated()
    assert [number for number, _ in bench.poll("b").grants] == [1, 2]


def test_lowering_the_limit_revokes_no_permit_and_grants_none_until_enough_returned(bench: Bench) -> None:
    bench.core.configure(bench.now, LimiterSettings(4, lease=10))
    held = [p for _, p in bench.send("a", acquire=(1, 2, 3, 4)).grants]
    bench.send("b", acquire=(1,))
    bench.core.configure(bench.now, LimiterSettings(2, lease=10))
    assert bench.core.snapshot(bench.now).in_use == 4
    for permit in held[:2]:
        bench.send("a", release=(permit,))
        assert bench.poll("b").grants == ()
    bench.send("a", release=(held[2],))
    assert len(bench.poll("b").grants) == 1


def test_a_client_may_hand_on_permits_only_while_its_waiters_are_first(bench: Bench) -> None:
    bench.send("a", acquire=(1, 2))
    reply = bench.send("a", acquire=(3, 4))
    assert reply.run == reply.tickets[-1][1]
    bench.send("b", acquire=(1,))
    more = bench.send("a", acquire=(5,))
    assert more.run == reply.run, "a's fifth waiter is behind b's first"
    assert bench.poll("b").run == 0


def test_handing_on_changes_neither_the_count_nor_the_order(bench: Bench) -> None:
    (_, permit), _ = bench.send("a", acquire=(1, 2)).grants
    bench.send("a", acquire=(3,))
    bench.send("b", acquire=(1,))
    assert bench.send("a", handed=((3, permit),)).lost == ()
    snapshot = bench.core.snapshot(bench.now)
    assert (snapshot.in_use, snapshot.waiting, snapshot.handed_on) == (2, 1, 1)
    bench.send("a", release=(permit,))
    assert [number for number, _ in bench.poll("b").grants] == [1]


def test_nothing_is_handed_on_while_more_permits_are_out_than_allowed(bench: Bench) -> None:
    bench.send("a", acquire=(1, 2))
    assert bench.send("a", acquire=(3,)).run > 0
    bench.core.configure(bench.now, LimiterSettings(1, lease=10))
    assert "a" in bench.core.take_updated(), "the client must be notified at once"
    assert bench.poll("a").run == 0


def test_requests_per_second_are_limited_in_addition_to_those_in_flight() -> None:
    bench = Bench(rate_limit=100, per_second=2, burst=3)
    bench.attach("a")
    assert len(bench.send("a", acquire=tuple(range(10))).grants) == 3
    assert bench.core.next_deadline(bench.now) == pytest.approx(bench.now + 0.5)
    granted = []
    for _ in range(4):
        bench.now += 0.5
        granted.append(len(bench.poll("a").grants))
    assert granted == [1, 1, 1, 1]
    assert bench.poll("a").run == 0, "each attempt needs a token, so none may be handed on"


def test_an_adaptive_limiter_narrows_on_429_and_widens_again() -> None:
    bench = Bench(rate_limit=10, adaptive=True)
    bench.attach("a")
    bench.send("a", throttled=5)
    assert bench.core.width == 7
    bench.send("a", throttled=5)
    assert bench.core.width == 7, "a burst of 429s counts once"
    for _ in range(20):
        bench.now += 1
        bench.send("a", throttled=1)
    assert bench.core.width == 1
    for _ in range(100):
        bench.send("a", succeeded=1)
    assert bench.core.width == 10


def test_a_limiter_that_is_not_adaptive_ignores_429() -> None:
    bench = Bench(rate_limit=10)
    bench.attach("a")
    bench.send("a", throttled=5)
    assert bench.core.width == 10


def test_a_batch_of_an_unknown_client_is_not_applied(bench: Bench) -> None:
    reply = bench.send("c", acquire=(1,), release=("0-1",))
    assert reply.unknown
    assert bench.core.snapshot(bench.now).waiting == 0


def test_a_lost_grant_returns_and_its_waiter_keeps_its_place(bench: Bench) -> None:
    held = [p for _, p in bench.send("b", acquire=(1, 2)).grants]
    tickets = dict(bench.send("a", acquire=(7,)).tickets)
    bench.send("b", acquire=(3,))
    bench.send("b", release=(held[0],))  # grants a's 7, but the reply is lost
    reply = bench.attach("a", waiting=((7, tickets[7]),))
    assert [number for number, _ in reply.grants] == [7], "before b's 3, which arrived later"


def test_a_poll_from_before_the_last_attachment_receives_nothing(bench: Bench) -> None:
    bench.send("b", acquire=(1, 2))
    bench.send("a", acquire=(1,))
    before = bench.epochs["a"]
    bench.attach("a", waiting=((1, None),))
    bench.send("b", detach=True)
    assert bench.poll("a", epoch=before).grants == ()
    assert len(bench.poll("a").grants) == 1


class TestShares:
    """Two jobs on one limiter."""

    def serve(self, bench: Bench, grants: int) -> list[str]:
        """Release the oldest permit again and again; return who was granted one, in order."""
        order: list[str] = []
        for _ in range(grants):
            client, _, permit = bench.granted.pop(0)
            bench.send(client, release=(permit,))
            for other in bench.epochs:
                bench.poll(other)
            order.append(bench.granted[-1][0])
        return order

    def test_permits_out_approach_the_weights(self) -> None:
        bench = Bench(rate_limit=8)
        bench.attach("big", share="big", weight=3.0)
        bench.attach("small", share="small", weight=1.0)
        bench.send("big", acquire=tuple(range(100)))
        bench.send("small", acquire=tuple(range(100)))
        self.serve(bench, 40)
        shares = bench.core.snapshot(bench.now).shares
        assert {name: (s.weight, s.in_use) for name, s in shares.items()} == {"big": (3.0, 6), "small": (1.0, 2)}

    @pytest.mark.parametrize("weights", [(1, 1), (1, 3), (1, 10), (1, 1, 1, 9), (1 / 3, 2 / 3)], ids=str)
    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 10])
    def test_calls_of_equal_length_are_granted_by_weight_at_every_limit(
        self, limit: int, weights: tuple[float, ...]
    ) -> None:
        bench = Bench(rate_limit=limit)
        jobs = {f"job {number}": weight for number, weight in enumerate(weights)}
        for job, weight in jobs.items():
            bench.attach(job, share=job, weight=weight)
        for job in reversed(jobs):
            bench.send(job, acquire=tuple(range(150)))
        order = self.serve(bench, 132)
        for job, weight in jobs.items():
            assert order.count(job) / 132 == pytest.approx(weight / sum(weights), abs=0.03)

    @pytest.mark.parametrize(("weight", "most"), [(1.0, 2), (3.0, 3), (0.1, 1)])
    def test_a_share_of_long_calls_holds_no_more_than_its_part_rounded_up(self, weight: float, most: int) -> None:
        bench = Bench(rate_limit=4)
        bench.attach("short", share="short")
        bench.attach("long", share="long", weight=weight)
        bench.send("short", acquire=tuple(range(100)))
        bench.send("long", acquire=tuple(range(100)))
        for _ in range(60):
            _, _, permit = bench.granted.pop(next(i for i, (who, _, _) in enumerate(bench.granted) if who == "short"))
            bench.send("short", release=(permit,))
            bench.poll("long")
        assert bench.core.snapshot(bench.now).shares["long"].in_use == most

    def test_a_share_without_waiters_leaves_its_part_to_the_others_and_saves_nothing_up(self) -> None:
        bench = Bench(rate_limit=2)
        bench.attach("busy", share="busy")
        bench.attach("idle", share="idle", weight=100.0)
        bench.send("busy", acquire=tuple(range(100)))
        assert self.serve(bench, 20) == ["busy"] * 20
        bench.send("idle", acquire=(1, 2))
        assert self.serve(bench, 4).count("idle") == 2

    @pytest.mark.parametrize(
        "weight", [0, -1.0, math.nan, math.inf, 1e-320, 10**400, True, "3"], ids=lambda w: str(w)[:6]
    )
    def test_an_unusable_weight_is_refused_on_the_wire_and_changes_nothing(self, weight: object) -> None:
        bench = Bench(rate_limit=1)
        bench.attach("a")
        bench.send("a", acquire=(1, 2))
        before = bench.core.snapshot(bench.now)
        with pytest.raises(ConfigError, match="the weight of a share must be"):
            bench.attach("b", waiting=((1, None),), share="other", weight=weight)
        assert bench.core.snapshot(bench.now) == before

    def test_clients_without_a_share_stay_in_order_of_arrival(self) -> None:
        bench = Bench(rate_limit=1)
        for client in "abc":
            bench.attach(client)
        for number, client in enumerate("abcbcaacb"):
            bench.send(client, acquire=(number,))
        assert self.serve(bench, 8) == list("bcbcaacb")

    def test_nothing_is_handed_on_while_clients_of_two_shares_are_attached(self) -> None:
        bench = Bench(rate_limit=1)
        bench.attach("a")
        assert bench.send("a", acquire=(1, 2)).run > 0
        bench.attach("b", share="other")
        assert "a" in bench.core.take_updated(), "the client must be notified at once"
        assert bench.poll("a").run == 0
        bench.send("b", detach=True)
        assert bench.poll("a").run > 0


class TestLeaseChange:
    """A client never believes in a permit for longer than the limiter does."""

    def test_a_permit_keeps_the_lease_that_it_was_given(self, bench: Bench) -> None:
        bench.send("a", acquire=(1,))
        bench.core.configure(bench.now, LimiterSettings(rate_limit=2, lease=1))
        assert bench.core.snapshot(bench.now + 9.9).in_use == 1
        assert bench.core.snapshot(bench.now + 10).in_use == 0

    def test_a_permit_given_after_the_lease_was_shortened_does_not_wait_for_the_older_ones(self, bench: Bench) -> None:
        bench.send("a", acquire=(1,))
        bench.core.configure(bench.now, LimiterSettings(rate_limit=2, lease=1))
        bench.send("b", acquire=(1,))
        assert bench.core.snapshot(bench.now + 1).holders == {"a": 1}

    def test_a_client_is_judged_by_the_lease_that_it_knows(self, bench: Bench) -> None:
        bench.send("b", acquire=(1, 2))
        bench.send("a", acquire=(1,))
        bench.core.configure(bench.now, LimiterSettings(rate_limit=2, lease=1))
        assert bench.core.snapshot(bench.now + 9.9).waiters == {"a": 1}
        bench.now += 9.9
        assert bench.poll("a").lease == 1
        assert bench.core.snapshot(bench.now + 1).waiters == {}

    def test_a_successor_waits_for_the_longest_lease_that_may_be_in_force(self, bench: Bench) -> None:
        bench.core.configure(bench.now, LimiterSettings(rate_limit=2, lease=1))
        assert bench.core.longest_lease(bench.now + 9.9) == 10
        assert bench.core.longest_lease(bench.now + 10) == 1


@pytest.mark.parametrize(
    ("since_removal", "expected"), [(None, ({"a": 7}, 30.0)), (20.0, ({"a": 7}, 10.0)), (30.0, ({}, 5.0))]
)
def test_a_stranger_learns_while_the_clients_of_the_one_before_may_hold_permits(
    since_removal: float | None, expected: tuple[dict[str, int], float]
) -> None:
    record = LimiterRecord("actor", {}, {"a": 7}, lease=30.0)
    assert learning_of(record, LimiterSettings(lease=5.0), since_removal) == expected


class TestRestart:
    """A restarted limiter knows nothing, and still must not exceed the limit."""

    def successor(self, *learn_from: str, **options: object) -> Bench:
        bench = Bench()
        settings = LimiterSettings(rate_limit=2, lease=10)
        known = dict.fromkeys(learn_from, 0)
        bench.now = 0.0
        bench.core = LimiterCore(settings, 0.0, incarnation="1", first_ticket=1000, learn_from=known, **options)  # type: ignore[arg-type]
        return bench

    def test_nothing_is_granted_until_all_clients_have_reported(self) -> None:
        bench = self.successor("a", "b")
        assert bench.attach("b", waiting=((1, 7),)).grants == ()
        bench.attach("a", held=("0-1",))
        assert len(bench.poll("b").grants) == 1
        assert bench.core.snapshot(0.0).in_use == 2

    def test_clients_that_never_report_are_waited_for_exactly_one_lease(self) -> None:
        bench = self.successor("a", "b")
        bench.attach("b", waiting=((1, 7), (2, 8), (3, 9)))
        bench.now = 9.0
        bench.send("b")
        assert bench.core.snapshot(9.9).in_use == 0
        assert bench.core.next_deadline(9.9) == 10.0
        bench.now = 10.0
        assert len(bench.poll("b").grants) == 2

    def test_clients_are_waited_for_as_long_as_they_may_believe_in_their_permits(self) -> None:
        bench = self.successor("a", learn_for=30.0)
        assert bench.core.learning_at(29.9)
        assert not bench.core.learning_at(30.0)

    def test_a_learned_permit_lasts_as_long_as_its_owner_may_believe_in_it(self) -> None:
        """The owner was given 30 s by the predecessor, and may not receive the reply that says 10 s."""
        bench = self.successor("a", learn_for=30.0)
        bench.attach("a", held=("0-1",))
        assert bench.core.snapshot(29.9).in_use == 1
        assert bench.core.snapshot(30.0).in_use == 0

    def test_a_successor_of_a_limiter_that_is_learning_learns_from_the_same_clients(self) -> None:
        bench = self.successor("a", "b", learn_for=30.0)
        bench.attach("b")
        assert set(bench.core.clients()) == {"a", "b"}
        assert bench.core.longest_lease(1.0) == 30.0
        assert bench.core.longest_lease(30.0) == 10.0

    def test_a_copy_of_an_attachment_that_the_predecessor_applied_is_not_a_report(self) -> None:
        """When it was sent the client held nothing; since then it may have been granted permits."""
        bench = self.successor()
        bench.core = LimiterCore(LimiterSettings(rate_limit=2, lease=10), 0.0, learn_from={"a": 5})
        bench.deliver(Batch("a", Attach((), ()), number=5))
        assert bench.core.learning_at(0.0)
        bench.deliver(Batch("a", Attach((), ()), number=6))
        assert not bench.core.learning_at(0.0)

    def test_the_queue_is_rebuilt_by_ticket_whichever_client_attaches_first(self) -> None:
        bench = self.successor("a", "b", "c")
        bench.attach("c", waiting=((1, None),))
        bench.attach("b", waiting=((1, 12), (2, 14)))
        bench.attach("a", waiting=((1, 11), (2, 13)))
        for client in "bac":
            bench.poll(client)
        order = []
        for _ in range(5):
            bench.granted.sort(key=lambda grant: int(grant[2].partition("-")[2]))  # by number of the permit
            client, number, permit = bench.granted.pop(0)
            order.append((client, number))
            bench.send(client, release=(permit,))
            for other in "abc":
                bench.poll(other)
        assert order == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)], "waiters without a ticket come last"

    def test_nothing_is_handed_on_before_the_whole_queue_is_known(self) -> None:
        assert self.successor("a", "b").attach("a", held=("0-1",), waiting=((2, 9),)).run == 0

    def test_a_permit_reported_after_the_learning_phase_is_lost(self) -> None:
        assert self.successor().attach("a", held=("0-1",)).lost == ("0-1",)

    def test_permits_of_unleased_clients_are_known_from_the_start_and_never_expire(self) -> None:
        bench = self.successor(unleased={"callers": ("0-1", "0-2")})
        bench.now = 1000.0
        assert bench.attach("a", waiting=((1, None),)).grants == ()
        bench.attach("callers", held=("0-1", "0-2"))
        bench.send("callers", release=("0-1",))
        assert len(bench.poll("a").grants) == 1


def test_the_next_deadline_is_the_first_death_of_a_client_that_waits() -> None:
    """Whatever happened before: clients that ask, cancel, fall silent, come back, or learn of another lease."""
    draw = random.Random(3)
    bench = Bench(rate_limit=1, lease=10)
    numbers = itertools.count(1)
    asked: dict[str, list[int]] = {name: [] for name in "abcde"}
    seen_infinite = 0
    for _ in range(3000):
        bench.now += draw.choice((0.0, 0.5, 2.0))
        client = draw.choice("abcde")
        match draw.randrange(6):
            case 0:
                bench.attach(client, waiting=tuple((number, None) for number in asked[client][-2:]))
            case 1 | 2:
                asked[client].append(next(numbers))
                bench.send(client, acquire=(asked[client][-1],))
            case 3:
                bench.send(
                    client, cancel=tuple(asked[client]), release=tuple(p for c, _, p in bench.granted if c == client)
                )
            case 4:
                bench.now += draw.choice((0.0, 0.0, 12.0))
            case _:
                bench.core.configure(bench.now, LimiterSettings(1, lease=draw.choice((4.0, 10.0, 30.0))))
        bench.core.tick(bench.now)
        waiting = [c for c in bench.core._clients.values() if c.tickets]
        first = min((c.seen + c.lease for c in waiting), default=math.inf)
        expiry = bench.core._next_expiry()
        assert bench.core.next_deadline(bench.now) == (min(first, expiry) if waiting else expiry)
        seen_infinite += first == math.inf
    assert 100 < seen_infinite < 2900


@pytest.mark.parametrize(
    "act",
    [lambda bench: bench.core.next_deadline(bench.now), lambda bench: bench.attach("new", waiting=((1, None),))],
    ids=["next_deadline", "attach"],
)
def test_the_work_does_not_grow_with_the_clients_that_wait(act: Callable[[Bench], object]) -> None:
    def calls(clients: int) -> int:
        bench = Bench(rate_limit=1, lease=10)
        for number in range(clients):
            bench.attach(f"c{number}")
            bench.send(f"c{number}", acquire=(1,))
        counted = 0

        def count(*_: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            act(bench)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(1000) == calls(10)
