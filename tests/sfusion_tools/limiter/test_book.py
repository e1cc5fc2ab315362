"""Who holds a permit until when, and who is served next; the test sets the time."""

from __future__ import annotations

import gc
import itertools
import math
import random
import sys
from collections.abc import Callable

import pytest

from sfusion_tools.limiter.messages import Poll
from sfusion_tools.limiter.settings import LimiterSettings
from tests.sfusion_tools.limiter.bench import Bench


def test_permits_are_granted_up_to_the_limit_and_not_beyond(bench: Bench) -> None:
    assert len(bench.send("a", acquire=(1, 2, 3)).grants) == 2
    snapshot = bench.core.snapshot(bench.now)
    assert (snapshot.in_use, snapshot.waiting) == (2, 1)


def test_grants_are_first_come_first_served_across_clients(bench: Bench) -> None:
    permits = [permit for _, permit in bench.send("a", acquire=(1, 2)).grants]
    bench.granted.clear()
    for number, client in enumerate("abbaab", start=10):
        bench.send(client, acquire=(number,))
    bench.send(
        "a", release=(permits.pop(),)
    )  # a single place from here on, so that the order of grants is visible
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
    bench.send(
        "b", release=(returned,), renew=(kept,)
    )  # granted to "a", which has been silent for nine seconds
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
    """verl defect (k): all waiters of a dead client leave the queue, and the next ones are
    served."""
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
    """verl defect (f): a cancelled acquire released a permit it never had, and a limit of 1 let
    5 through."""
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


def test_lowering_the_limit_revokes_no_permit_and_grants_none_until_enough_returned(
    bench: Bench,
) -> None:
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


def test_the_next_deadline_is_the_first_death_of_a_client_that_waits() -> None:
    """Whatever happened before: clients that ask, cancel, fall silent, come back, or learn of
    another lease."""
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
                    client,
                    cancel=tuple(asked[client]),
                    release=tuple(p for c, _, p in bench.granted if c == client),
                )
            case 4:
                bench.now += draw.choice((0.0, 0.0, 12.0))
            case _:
                bench.core.configure(
                    bench.now, LimiterSettings(1, lease=draw.choice((4.0, 10.0, 30.0)))
                )
        bench.core.tick(bench.now)
        waiting = [c for c in bench.core._clients.values() if c.tickets]
        first = min((c.seen + c.lease for c in waiting), default=math.inf)
        expiry = bench.core._next_expiry()
        assert bench.core.next_deadline(bench.now) == (min(first, expiry) if waiting else expiry)
        seen_infinite += first == math.inf
    assert 100 < seen_infinite < 2900


@pytest.mark.parametrize(
    "act",
    [
        lambda bench: bench.core.next_deadline(bench.now),
        lambda bench: bench.attach("new", waiting=((1, None),)),
    ],
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

        gc.disable()  # what other tests have left is not counted
        sys.setprofile(count)
        try:
            act(bench)
        finally:
            sys.setprofile(None)
            gc.enable()
        return counted

    assert calls(1000) == calls(10)
