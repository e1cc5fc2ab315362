"""Jobs that share one limiter."""

from __future__ import annotations

import math

import pytest

from sfusion_tools.errors import ConfigError
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

    def test_permits_out_approach_the_weights(self) -> None:
        bench = Bench(rate_limit=8)
        bench.attach("big", share="big", weight=3.0)
        bench.attach("small", share="small", weight=1.0)
        bench.send("big", acquire=tuple(range(100)))
        bench.send("small", acquire=tuple(range(100)))
        self.serve(bench, 40)
        shares = bench.core.snapshot(bench.now).shares
        assert {name: (s.weight, s.in_use) for name, s in shares.items()} == {
            "big": (3.0, 6),
            "small": (1.0, 2),
        }

    @pytest.mark.parametrize(
        "weights", [(1, 1), (1, 3), (1, 10), (1, 1, 1, 9), (1 / 3, 2 / 3)], ids=str
    )
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
    def test_a_share_of_long_calls_holds_no_more_than_its_part_rounded_up(
        self, weight: float, most: int
    ) -> None:
        bench = Bench(rate_limit=4)
        bench.attach("short", share="short")
        bench.attach("long", share="long", weight=weight)
        bench.send("short", acquire=tuple(range(100)))
        bench.send("long", acquire=tuple(range(100)))
        for _ in range(60):
            _, _, permit = bench.granted.pop(
                next(i for i, (who, _, _) in enumerate(bench.granted) if who == "short")
            )
            bench.send("short", release=(permit,))
            bench.poll("long")
        assert bench.core.snapshot(bench.now).shares["long"].in_use == most

    def test_a_share_without_waiters_leaves_its_part_to_the_others_and_saves_nothing_up(
        self,
    ) -> None:
        bench = Bench(rate_limit=2)
        bench.attach("busy", share="busy")
        bench.attach("idle", share="idle", weight=100.0)
        bench.send("busy", acquire=tuple(range(100)))
        assert self.serve(bench, 20) == ["busy"] * 20
        bench.send("idle", acquire=(1, 2))
        assert self.serve(bench, 4).count("idle") == 2

    @pytest.mark.parametrize(
        "weight",
        [0, -1.0, math.nan, math.inf, 1e-320, 10**400, True, "3"],
        ids=lambda w: str(w)[:6],
    )
    def test_an_unusable_weight_is_refused_on_the_wire_and_changes_nothing(
        self, weight: object
    ) -> None:
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
