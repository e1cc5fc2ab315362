"""The trial in virtual time: what it can play, what it must leave unknown, and what it says of reward functions."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from sfusion.harness.lab.promises.verdict import Verdict
from sfusion.harness.lab.worlds import virtual_time
from sfusion.harness.trial.checks import CHECKS
from sfusion.harness.trial.client import TAKES, Settings, Told, TrialAsk
from sfusion.harness.trial.plan import Scene, TrialPlan
from sfusion.harness.trial.record import Record
from sfusion.harness.trial.scenes import make_plan
from sfusion.harness.trial.trial import judge_record, wording_table
from sfusion.harness.trial.virtual import play_virtually
from tests.proof.tool_client import ToolClient
from tests.reference_tool import GoodTool


class PlainClient:
    """A function ``(url, code) -> text`` as a client; subclasses replace ``run``."""

    takes = frozenset({"code", "text", "concurrent", "raises"})

    async def begin(self, settings: Settings) -> None:
        self.url = settings.urls[0]

    async def call(self, ask: TrialAsk) -> Told:
        return Told(await self.run(ask))

    async def run(self, ask: TrialAsk) -> str:
        result = await self.send(ask.code)
        return f"{result['stdout']}{result['stderr']}" + (
            f"\n(exit {result['return_code']})" if result["return_code"] else ""
        )

    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        body = {"code": code, "language": "python", "stdin": stdin}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/run_code", json=body, timeout=aiohttp.ClientTimeout(30)) as answer,
        ):
            answer.raise_for_status()
            result: dict[str, Any] = (await answer.json(content_type=None))["run_result"]
            return result

    async def end(self) -> None: ...

    def inside(self) -> Any:
        return None


def plan(*names: str, seed: int = 0, **changes: Any) -> TrialPlan:
    """The trial's plan with these scenes alone."""
    whole = make_plan(seed)
    scenes = [one for one in whole.scenes if isinstance(one, Scene) and one.name in names]
    return replace(whole, scenes=tuple(replace(one, **changes) for one in scenes))


def played(client: Callable[[], Any], *names: str, **changes: Any) -> tuple[Record, list[Verdict]]:
    record = play_virtually(plan(*names, **changes), client)
    return record, judge_record(record)


def broken(verdicts: list[Verdict]) -> set[tuple[str, str]]:
    return {(one.promise, one.how.kind) for one in verdicts if one.state == "broken"}


def test_a_client_of_a_few_lines_is_judged_by_what_it_takes() -> None:
    record, verdicts = played(PlainClient, "programs", "together", "cancelled")
    assert record.left_out == {"cancelled": "cancel"}
    assert "timeout" not in {one.end for one in record.scenes["programs"].scene.calls if one.ask.language != "python"}
    # It says nothing of timeouts, so those look like programs that end well.
    assert ("ends_told_apart", "same") in broken(verdicts)
    states = {one.promise: one.state for one in verdicts}
    assert states["limit_kept"] == states["lost_tests_not_failed"] == "unknown"
    assert states["sent_as_asked"] == states["read_as_happened"] == "held"
    sentences = {one.promise: one.sentence for one in verdicts}
    assert sentences["limit_kept"].startswith("only for a client that can be configured with a limit")
    assert sentences["retry_after_respected"].startswith("no call was sent again after a 429 or 503 with Retry-After")


def test_a_client_that_never_ends_a_call_is_broken_off_at_the_horizon() -> None:
    class Hangs(PlainClient):
        async def run(self, ask: TrialAsk) -> str:
            await self.send(ask.code)
            await asyncio.Event().wait()
            return ""

    record, verdicts = played(Hangs, "idle", horizon=50.0)
    assert record.scenes["idle"].broken_off == "4 of 4 calls had not ended after 50 s"
    assert ("ends_in_time", "never") in broken(verdicts)


def test_a_client_that_keeps_the_loop_busy_does_not_hang_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "_FRUITLESS", 5_000)

    class Spins(PlainClient):
        async def run(self, ask: TrialAsk) -> str:
            await self.send(ask.code)
            while True:  # noqa: ASYNC110 - that is the point
                await asyncio.sleep(0)

    record, verdicts = played(Spins, "idle")
    assert "again and again" in record.scenes["idle"].broken_off
    assert ("ends_in_time", "never") in broken(verdicts)


def test_what_virtual_time_cannot_play_is_unknown() -> None:
    class Blocks(PlainClient):
        async def run(self, ask: TrialAsk) -> str:
            try:
                urllib.request.urlopen(f"{self.url}/run_code", timeout=1)  # noqa: ASYNC210 - that is the point
            except OSError as error:
                return f"failed: {error}"
            return ""

    record, verdicts = played(Blocks, "programs")
    assert "virtual time cannot play" in record.unplayable
    assert {one.state for one in verdicts} == {"unknown"}
    assert len(verdicts) == len(CHECKS)


def test_the_same_seed_gives_the_same_record_and_another_one_other_canaries() -> None:
    records = [
        play_virtually(plan("programs", "together", seed=seed), lambda: ToolClient(GoodTool)) for seed in (1, 1, 2)
    ]
    facts = [
        [(one.mark, one.at, one.status, one.body) for scene in record.scenes.values() for one in scene.requests]
        for record in records
    ]
    texts = [[call.told.text for call in record.scenes["programs"].calls if call.told] for record in records]
    assert (facts[0], texts[0]) == (facts[1], texts[1])
    assert texts[0] != texts[2]
    assert wording_table(records[0]) == wording_table(records[2])


class Scores(PlainClient):
    """A reward function: the share of tests that pass; none if the sandbox lost one."""

    takes = frozenset({"code", "tests", "reward", "raises"})

    async def call(self, ask: TrialAsk) -> Told:
        return self.score([await self.passes(ask.code, given, wanted) for given, wanted in ask.tests])

    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        try:
            result = await self.send(code, given)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return self.after(error)
        if not result or result["stdout"] is None:
            return None
        return bool(result["return_code"] == 0 and result["stdout"] == wanted)

    def after(self, error: Exception) -> bool | None:
        return None

    def score(self, passed: list[bool | None]) -> Told:
        return Told() if None in passed else Told(reward=passed.count(True) / len(passed))


class AllOrNothing(Scores):
    def score(self, passed: list[bool | None]) -> Told:
        return Told() if None in passed else Told(reward=float(all(passed)))


class StopsAtTheFirstFailure(Scores):
    """The share of tests that pass before one fails; the others are not sent."""

    async def call(self, ask: TrialAsk) -> Told:
        passed: list[bool | None] = []
        while len(passed) < len(ask.tests) and all(passed):
            passed.append(await self.passes(ask.code, *ask.tests[len(passed)]))
        return Told() if None in passed else Told(reward=passed.count(True) / len(ask.tests))


class TellsWhatWasLost(Scores):
    """The share of the tests that came back, and how many did not."""

    def score(self, passed: list[bool | None]) -> Told:
        lost = passed.count(None)
        return Told(fields={"lost": lost}, reward=passed.count(True) / (4 - lost) if lost < 4 else None)


class LostIsFailed(Scores):
    """As verl's: a test whose sandbox failed counts as one that failed."""

    def score(self, passed: list[bool | None]) -> Told:
        return Told(reward=passed.count(True) / len(passed))


class ATimeoutIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, TimeoutError) else None


class AResetIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError) else None


class AnErrorOfTheGatewayIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, aiohttp.ClientResponseError) and error.status == 502 else None


class RefusedIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, aiohttp.ClientResponseError) and error.status == 429 else None


class UnreadableIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, ValueError) else None


class NullIsEmpty(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        result = await super().send(code, stdin)
        return result and {**result, "stdout": result["stdout"] or ""}


class NothingFailed(Scores):
    """An outage rewards everything."""

    def score(self, passed: list[bool | None]) -> Told:
        return Told(fields={"lost": passed.count(None)}, reward=float(False not in passed))


class LostIsNotTold(Scores):
    def score(self, passed: list[bool | None]) -> Told:
        back = [one for one in passed if one is not None]
        return Told(reward=sum(back) / len(back) if back else None)


class TellsOnlyThatAllWereLost(TellsWhatWasLost):
    def score(self, passed: list[bool | None]) -> Told:
        told = super().score(passed)
        fields = {"lost": 0, "back": 4 - passed.count(None)}
        return told if told.reward is None else Told(fields=fields, reward=told.reward)


class ExitCodeIgnored(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        result = await super().send(code, stdin)
        return result and {**result, "return_code": 0}


class FoundInTheOutput(Scores):
    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        result = await self.send(code, given)
        return wanted in result["stdout"] and result["return_code"] == 0


class LooksAtTheFirstTest(Scores):
    def score(self, passed: list[bool | None]) -> Told:
        return Told() if None in passed else Told(reward=float(passed[0] or 0))


class ScoresAnything(Scores):
    def score(self, passed: list[bool | None]) -> Told:
        return Told() if None in passed else Told(reward=1.0)


class Upside(Scores):
    def score(self, passed: list[bool | None]) -> Told:
        return Told() if None in passed else Told(reward=passed.count(False) / 4)


class InputStripped(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        return await super().send(code, (stdin or "").strip())


class ComesBackAtOnce(Scores):
    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        first = await super().passes(code, given, wanted)
        return await super().passes(code, given, wanted) if first is None else first


LOST = "lost_tests_not_failed"


@pytest.mark.parametrize(
    ("client", "found"),
    [
        *((right, set()) for right in (Scores, AllOrNothing, StopsAtTheFirstFailure, TellsWhatWasLost)),
        (LostIsFailed, {(LOST, "lost")}),
        (ATimeoutIsFailed, {(LOST, "lost")}),
        (AResetIsFailed, {(LOST, "lost")}),
        (AnErrorOfTheGatewayIsFailed, {(LOST, "lost")}),
        (RefusedIsFailed, {(LOST, "lost")}),
        (UnreadableIsFailed, {(LOST, "lost")}),
        (NullIsEmpty, {(LOST, "lost")}),
        (NothingFailed, {(LOST, "all_lost")}),
        (LostIsNotTold, {(LOST, "hidden")}),
        (TellsOnlyThatAllWereLost, {(LOST, "miscounted")}),
        (ExitCodeIgnored, {(LOST, "unearned")}),
        (FoundInTheOutput, {(LOST, "unearned")}),
        (LooksAtTheFirstTest, {(LOST, "unearned")}),
        (ScoresAnything, {(LOST, "flat")}),
        (Upside, {(LOST, "falls")}),
        (InputStripped, {("sent_as_asked", "field"), (LOST, "flat")}),
        (ComesBackAtOnce, {("retry_after_respected", "early")}),
    ],
)
def test_reward_functions(client: type[Scores], found: set[tuple[str, str]]) -> None:
    _, verdicts = played(client, "tests")
    assert broken(verdicts) == found


def test_every_key_of_takes_is_known_to_the_plan_or_the_checks() -> None:
    whole = make_plan()
    scenes = [one for one in whole.scenes if isinstance(one, Scene)]
    needed = {key for scene in scenes for key in scene.needs} | {
        key for check in CHECKS.values() for key in check.needs
    }
    needed |= {key for scene in scenes for call in scene.calls for key in call.needs}
    assert needed <= set(TAKES)
