"""What the limiter makes of messages: permits handed on, lost grants, earlier attachments."""

from __future__ import annotations

from sfusion_tools.limiter.settings import LimiterSettings
from tests.sfusion_tools.limiter.bench import Bench


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


def test_a_client_that_was_silent_for_a_lease_waits_behind_those_who_were_not(
    bench: Bench,
) -> None:
    bench.attach("c")
    held = tuple(permit for _, permit in bench.send("c", acquire=(1, 2)).grants)
    tickets = dict(bench.send("a", acquire=(7,)).tickets)
    bench.send("b", acquire=(3,))
    bench.now += 5
    bench.send("b")
    bench.send("c", renew=held)
    bench.now += 5  # a has been silent for a lease
    bench.attach("a", waiting=((7, tickets[7]),))
    bench.send("c", release=held[:1])
    assert bench.poll("a").grants == ()
    assert [number for number, _ in bench.poll("b").grants] == [3]


def test_a_poll_from_before_the_last_attachment_receives_nothing(bench: Bench) -> None:
    bench.send("b", acquire=(1, 2))
    bench.send("a", acquire=(1,))
    before = bench.epochs["a"]
    bench.attach("a", waiting=((1, None),))
    bench.send("b", detach=True)
    assert bench.poll("a", epoch=before).grants == ()
    assert len(bench.poll("a").grants) == 1
