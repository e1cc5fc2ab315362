"""Jobs that share one limiter."""

from __future__ import annotations

import pytest

from tests.sfusion_tools.limiter.bench import Bench


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

    def test_shares_hold_equally_many_permits(self) -> None:
        bench = Bench(rate_limit=8)
        for share in ("one", "other"):
            bench.attach(share, share=share)
            bench.send(share, acquire=tuple(range(100)))
        self.serve(bench, 40)
        shares = bench.core.snapshot(bench.now).shares
        assert {name: state.in_use for name, state in shares.items()} == {"one": 4, "other": 4}

    @pytest.mark.parametrize("jobs", [2, 3, 4])
    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 10])
    def test_calls_of_equal_length_are_granted_equally_often_at_every_limit(
        self, limit: int, jobs: int
    ) -> None:
        bench = Bench(rate_limit=limit)
        names = [f"job {number}" for number in range(jobs)]
        for job in names:
            bench.attach(job, share=job)
        for job in reversed(names):
            bench.send(job, acquire=tuple(range(150)))
        order = self.serve(bench, 132)
        for job in names:
            assert order.count(job) / 132 == pytest.approx(1 / jobs, abs=0.03)

    @pytest.mark.parametrize(("limit", "most"), [(4, 2), (5, 3), (1, 1)])
    def test_a_share_of_long_calls_holds_no_more_than_its_part_rounded_up(
        self, limit: int, most: int
    ) -> None:
        bench = Bench(rate_limit=limit)
        bench.attach("short", share="short")
        bench.attach("long", share="long")
        bench.send("short", acquire=tuple(range(100)))
        bench.send("long", acquire=tuple(range(100)))
        for _ in range(60):
            short = [grant for grant in bench.granted if grant[0] == "short"]
            if not short:
                break
            bench.granted.remove(short[0])
            bench.send("short", release=(short[0][2],))
            bench.poll("long")
        assert bench.core.snapshot(bench.now).shares["long"].in_use == most

    def test_a_share_without_waiters_leaves_its_part_to_the_others_and_saves_nothing_up(
        self,
    ) -> None:
        bench = Bench(rate_limit=2)
        bench.attach("busy", share="busy")
        bench.attach("idle", share="idle")
        bench.send("busy", acquire=tuple(range(100)))
        assert self.serve(bench, 20) == ["busy"] * 20
        bench.send("idle", acquire=(1, 2))
        assert self.serve(bench, 4).count("idle") == 2

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
