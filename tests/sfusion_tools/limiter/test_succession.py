"""A limiter that is restarted, or whose lease changes."""

from __future__ import annotations

import pytest

from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Attach, Batch, LimiterRecord
from sfusion_tools.limiter.record import learning_of
from sfusion_tools.limiter.settings import LimiterSettings
from tests.sfusion_tools.limiter.bench import Bench


class TestLeaseChange:
    """A client never believes in a permit for longer than the limiter does."""

    def test_a_permit_keeps_the_lease_that_it_was_given(self, bench: Bench) -> None:
        bench.send("a", acquire=(1,))
        bench.core.configure(bench.now, LimiterSettings(rate_limit=2, lease=1))
        assert bench.core.snapshot(bench.now + 9.9).in_use == 1
        assert bench.core.snapshot(bench.now + 10).in_use == 0

    def test_a_permit_given_after_the_lease_was_shortened_does_not_wait_for_the_older_ones(
        self, bench: Bench
    ) -> None:
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

    def test_a_successor_waits_for_the_longest_lease_that_may_be_in_force(
        self, bench: Bench
    ) -> None:
        bench.core.configure(bench.now, LimiterSettings(rate_limit=2, lease=1))
        assert bench.core.longest_lease(bench.now + 9.9) == 10
        assert bench.core.longest_lease(bench.now + 10) == 1


@pytest.mark.parametrize(
    ("since_removal", "expected"),
    [(None, ({"a": 7}, 30.0)), (20.0, ({"a": 7}, 10.0)), (30.0, ({}, 5.0))],
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
        bench.core = LimiterCore(
            settings, 0.0, incarnation="1", first_ticket=1000, learn_from=known, **options
        )  # type: ignore[arg-type]
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
        """The owner was given 30 s by the predecessor, and may not receive the reply that says 10
        s."""
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
            bench.granted.sort(
                key=lambda grant: int(grant[2].partition("-")[2])
            )  # by number of the permit
            client, number, permit = bench.granted.pop(0)
            order.append((client, number))
            bench.send(client, release=(permit,))
            for other in "abc":
                bench.poll(other)
        assert order == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)], (
            "waiters without a ticket come last"
        )

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
