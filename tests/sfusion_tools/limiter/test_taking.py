"""Free permits that a client takes and returns without a message."""

from __future__ import annotations

from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.settings import LimiterSettings
from tests.sfusion_tools.limiter.bench import Bench


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

    def test_nobody_waits_for_a_client_that_died_before_its_message_came(
        self, bench: Bench
    ) -> None:
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
        assert (bench.core.snapshot(bench.now).expired, bench.core.snapshot(bench.now).fenced) == (
            1,
            1,
        )

    def test_a_client_that_has_to_attach_gets_none_and_returns_none(self, bench: Bench) -> None:
        held = self.take(bench, "a")
        bench.epochs["a"] -= 1
        assert self.take(bench, "a") is None
        assert not self.give_back(bench, "a", held)
        assert bench.core.in_use == 1
        assert self.take(bench, "b"), "and nobody waits for its message"

    def test_none_is_free_while_a_successor_learns(self, bench: Bench) -> None:
        bench.core = LimiterCore(
            LimiterSettings(2, 10), bench.now, incarnation="1", learn_from={"a": 0, "b": 0}
        )
        bench.attach("a")
        assert self.take(bench, "a") is None
        bench.attach("b")
        assert self.take(bench, "a")

    def test_its_turn_counts_for_its_share_like_one_of_a_caller_that_asks_with_a_message(
        self,
    ) -> None:
        def turns(*takes: str) -> list[int]:
            bench = Bench(rate_limit=9)
            bench.attach("a", share="x")
            bench.attach("b", share="y")
            for number, client in enumerate("aabaab"):
                assert (
                    self.take(bench, client)
                    if client in takes
                    else bench.send(client, acquire=(number,)).grants
                )
            return [bench.core._shares._turns, *(share.turns for share in bench.core._shares)]

        assert turns("a") == turns("b") == turns("a", "b") == turns()
