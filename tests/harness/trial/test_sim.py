"""The trial in virtual time: what it can play, what it must leave unknown, and what it says of
reward functions."""

from __future__ import annotations

import asyncio
import itertools
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from sfusion.harness.core.verdict import Verdict
from sfusion.harness.lab.client import TAKES, Returned, Settings, TrialAsk
from sfusion.harness.lab.promises.registry import OF_SINGLE_CALLS
from sfusion.harness.lab.single_calls.suite import SuiteFacts
from sfusion.harness.lab.worlds import virtual_time
from sfusion.harness.trial.trial import (
    PlayedScenes,
    bundled_scenes,
    check_journals,
    play_in_sim,
    wording_table,
)
from tests.proof.tool_client import ToolClient
from tests.reference_tool import GoodTool, PeerRequest, PeerResult, Shared


class PlainClient:
    """A function ``(url, code) -> text`` as a client; subclasses replace ``run``."""

    takes = frozenset({"code", "text", "concurrent", "raises"})

    async def begin(self, settings: Settings) -> None:
        self.url = settings.urls[0]

    async def call(self, ask: TrialAsk) -> Returned:
        return Returned(await self.run(ask))

    async def run(self, ask: TrialAsk) -> str:
        result = await self.send(ask.code)
        return f"{result['stdout']}{result['stderr']}" + (
            f"\n(exit {result['return_code']})" if result["return_code"] else ""
        )

    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        body = {"code": code, "language": "python", "stdin": stdin}
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{self.url}/run_code", json=body, timeout=aiohttp.ClientTimeout(30)
            ) as answer,
        ):
            answer.raise_for_status()
            result: dict[str, Any] = (await answer.json(content_type=None))["run_result"]
            return result

    async def end(self) -> None: ...

    def inside(self) -> Any:
        return None


def played(
    client: Callable[[], Any], *names: str, seed: int = 0, **changes: Any
) -> tuple[PlayedScenes, list[Verdict]]:
    """Play these scenes alone."""
    scenes = [one for one in bundled_scenes(seed) if one.scenario.removeprefix("judge-") in names]
    found = play_in_sim([one.changed(**changes) for one in scenes], client)
    return found, check_journals(found.journals)


def broken_off(found: PlayedScenes) -> str:
    return SuiteFacts(found.journals).runs[0].broken_off


def broken(verdicts: list[Verdict]) -> set[tuple[str, str]]:
    return {(one.promise, one.how.kind) for one in verdicts if one.state == "broken"}


def test_a_client_of_a_few_lines_is_judged_by_what_it_takes() -> None:
    found, verdicts = played(PlainClient, "programs", "together", "cancelled")
    assert found.left_out == {"judge-cancelled": "needs cancel"}
    assert {call.ask.language for call in SuiteFacts(found.journals)} == {"python"}
    # It says nothing of timeouts, so those look like programs that end well.
    assert ("ends_told_apart", "same") in broken(verdicts)
    states = {one.promise: one.state for one in verdicts}
    assert states["in_flight_within_limit"] == states["score_follows_the_tests"] == "not_applicable"
    assert states["sent_as_asked"] == states["text_is_truthful"] == "held"
    sentences = {one.promise: one.sentence for one in verdicts}
    assert sentences["in_flight_within_limit"].startswith(
        "only for a client that can be configured with a limit"
    )
    assert sentences["retry_after_honoured"].startswith(
        "no call was sent again after a 429 or 503 with Retry-After"
    )


def test_a_client_that_never_ends_a_call_is_broken_off_at_the_horizon() -> None:
    class Hangs(PlainClient):
        async def run(self, ask: TrialAsk) -> str:
            await self.send(ask.code)
            await asyncio.Event().wait()
            return ""

    found, verdicts = played(Hangs, "idle", horizon=50.0)
    assert broken_off(found) == "the run was broken off after 50 s"
    assert ("deadline_honoured", "never") in broken(verdicts)


def test_a_client_that_waits_as_long_as_it_is_asked_to_is_not_said_to_never_end() -> None:
    class Obeys(PlainClient):
        async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
            for _ in range(4):
                try:
                    return await super().send(code, stdin)
                except aiohttp.ClientResponseError as error:
                    await asyncio.sleep(float((error.headers or {})["Retry-After"]))
            raise RuntimeError("it is busy")

    found, verdicts = played(Obeys, "patience", horizon=1500.0)
    assert broken_off(found) == "the run was broken off after 1500 s"
    assert broken(verdicts) == set()
    ends = next(one for one in verdicts if one.promise == "deadline_honoured")
    assert (ends.state, ends.how.kind) == ("unknown", "asked_to_wait")


def test_a_client_that_keeps_the_loop_busy_does_not_hang_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual_time, "_FRUITLESS", 5_000)

    class Spins(PlainClient):
        async def run(self, ask: TrialAsk) -> str:
            await self.send(ask.code)
            while True:  # noqa: ASYNC110 - that is the point
                await asyncio.sleep(0)

    found, verdicts = played(Spins, "idle")
    assert "again and again" in broken_off(found)
    assert ("deadline_honoured", "never") in broken(verdicts)


def test_what_virtual_time_cannot_play_is_unknown() -> None:
    class Blocks(PlainClient):
        async def run(self, ask: TrialAsk) -> str:
            try:
                urllib.request.urlopen(f"{self.url}/run_code", timeout=1)  # noqa: ASYNC210 - that is the point
            except OSError as error:
                return f"failed: {error}"
            return ""

    found, verdicts = played(Blocks, "programs")
    assert found.unobserved
    assert {one.state for one in verdicts} == {"unknown"}
    of_clients = [promise for promise in OF_SINGLE_CALLS if "groups" not in promise.takes]
    assert len(verdicts) == len(of_clients)


def test_the_same_seed_gives_the_same_journal_and_another_one_other_canaries() -> None:
    first, again, other = (
        played(lambda: ToolClient(GoodTool), "programs", "together", seed=seed)[0].journals
        for seed in (1, 1, 2)
    )
    assert [one.digest() for one in first] == [one.digest() for one in again]
    assert first[0].digest() != other[0].digest()
    assert wording_table(SuiteFacts(first)) == wording_table(SuiteFacts(other))


class Scores(PlainClient):
    """A reward function: the share of tests that pass; none if the sandbox lost one."""

    takes = frozenset({"code", "tests", "reward", "raises"})

    async def call(self, ask: TrialAsk) -> Returned:
        return self.score(
            [await self.passes(ask.code, given, wanted) for given, wanted in ask.tests]
        )

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

    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if None in passed else Returned(reward=passed.count(True) / len(passed))


class AllOrNothing(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if None in passed else Returned(reward=float(all(passed)))


class StopsAtTheFirstFailure(Scores):
    """The share of tests that pass before one fails; the others are not sent."""

    async def call(self, ask: TrialAsk) -> Returned:
        passed: list[bool | None] = []
        while len(passed) < len(ask.tests) and all(passed):
            passed.append(await self.passes(ask.code, *ask.tests[len(passed)]))
        return (
            Returned() if None in passed else Returned(reward=passed.count(True) / len(ask.tests))
        )


class TellsWhatWasLost(Scores):
    """The share of the tests that came back, and how many did not."""

    def score(self, passed: list[bool | None]) -> Returned:
        lost = passed.count(None)
        return Returned(
            fields={"lost": lost}, reward=passed.count(True) / (4 - lost) if lost < 4 else None
        )


class LostIsFailed(Scores):
    """As verl's: a test whose sandbox failed counts as one that failed."""

    def score(self, passed: list[bool | None]) -> Returned:
        return Returned(reward=passed.count(True) / len(passed))


class ATimeoutIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, TimeoutError) else None


class AResetIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return (
            False
            if isinstance(error, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError)
            else None
        )


class AnErrorOfTheGatewayIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return (
            False
            if isinstance(error, aiohttp.ClientResponseError) and error.status == 502
            else None
        )


class RefusedIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return (
            False
            if isinstance(error, aiohttp.ClientResponseError) and error.status == 429
            else None
        )


class UnreadableIsFailed(Scores):
    def after(self, error: Exception) -> bool | None:
        return False if isinstance(error, ValueError) else None


class NullIsEmpty(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        result = await super().send(code, stdin)
        return result and {**result, "stdout": result["stdout"] or ""}


class NothingFailed(Scores):
    """An outage rewards everything."""

    def score(self, passed: list[bool | None]) -> Returned:
        return Returned(fields={"lost": passed.count(None)}, reward=float(False not in passed))


class LostIsNotTold(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        back = [one for one in passed if one is not None]
        return Returned(reward=sum(back) / len(back) if back else None)


class TellsOnlyThatAllWereLost(TellsWhatWasLost):
    def score(self, passed: list[bool | None]) -> Returned:
        returned = super().score(passed)
        fields = {"lost": 0, "back": 4 - passed.count(None)}
        return (
            returned if returned.reward is None else Returned(fields=fields, reward=returned.reward)
        )


class LostIsANumber(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned(reward=-1.0) if None in passed else super().score(passed)


class AnyWillDo(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if None in passed else Returned(reward=float(any(passed)))


class WrongIsNotScored(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if not all(passed) else Returned(reward=1.0)


class ExitCodeIgnored(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        result = await super().send(code, stdin)
        return result and {**result, "return_code": 0}


class FoundInTheOutput(Scores):
    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        result = await self.send(code, given)
        return wanted in result["stdout"] and result["return_code"] == 0


class LooksAtTheFirstTest(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if None in passed else Returned(reward=float(passed[0] or 0))


class ScoresAnything(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if None in passed else Returned(reward=1.0)


class TooSlowIsLost(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        result = await super().send(code, stdin)
        return {} if result["return_code"] is None else result


class RunsAgainWhatFailed(Scores):
    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        return await super().passes(code, given, wanted) or await super().passes(
            code, given, wanted
        )


class Upside(Scores):
    def score(self, passed: list[bool | None]) -> Returned:
        return Returned() if None in passed else Returned(reward=passed.count(False) / 4)


class InputStripped(Scores):
    async def send(self, code: str, stdin: str | None = None) -> dict[str, Any]:
        return await super().send(code, (stdin or "").strip())


class ComesBackAtOnce(Scores):
    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        first = await super().passes(code, given, wanted)
        return await super().passes(code, given, wanted) if first is None else first


LOST = "score_follows_the_tests"


@pytest.mark.parametrize(
    ("client", "found"),
    [
        *(
            (right, set())
            for right in (Scores, AllOrNothing, StopsAtTheFirstFailure, TellsWhatWasLost)
        ),
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
        (TooSlowIsLost, {(LOST, "unscored")}),
        (LostIsANumber, {(LOST, "numbered")}),
        (AnyWillDo, {(LOST, "unearned")}),
        (WrongIsNotScored, {(LOST, "unscored")}),
        (
            RunsAgainWhatFailed,
            {
                ("no_duplicate_execution", "again"),
                ("retry_after_honoured", "early"),
                ("only_transient_retried", "after_refusal"),
            },
        ),
        (Upside, {(LOST, "falls")}),
        (InputStripped, {("sent_as_asked", "field"), (LOST, "flat")}),
        (
            ComesBackAtOnce,
            {("retry_after_honoured", "early"), ("only_transient_retried", "after_refusal")},
        ),
    ],
)
def test_reward_functions(client: type[Scores], found: set[tuple[str, str]]) -> None:
    _, verdicts = played(client, "tests")
    assert broken(verdicts) == found


class LooselyEqual(Scores):
    """A solution passes if its output is the expected one after some change to both."""

    loosely: Callable[[str], Any]

    async def passes(self, code: str, given: str, wanted: str) -> bool | None:
        result = await self.send(code, given)
        same = type(self).loosely(result["stdout"]) == type(self).loosely(wanted)
        return same and result["return_code"] == 0


def _number(text: str) -> Any:
    try:
        return round(float(text), -1)
    except ValueError:
        return text


@pytest.mark.parametrize(
    ("loosely", "found"),
    [
        (str.rstrip, set()),
        (str.split, set()),
        (str.casefold, {"mistaken"}),
        (lambda text: "".join(text.split()), {"mistaken"}),
        (lambda text: text.strip().split("\n")[-1], {"mistaken"}),
        (lambda text: sorted(text.split("\n")), {"mistaken"}),
        (_number, {"mistaken"}),
        (lambda text: text.encode("ascii"), {"unrecognised", "mistaken"}),
        (lambda text: text.encode("ascii", "ignore"), {"mistaken"}),
    ],
)
def test_answers_that_are_nearly_right(loosely: Any, found: set[str]) -> None:
    client = type("Loosely", (LooselyEqual,), {"loosely": staticmethod(loosely)})
    _, verdicts = played(client, "comparisons")
    kinds = {one.how.kind for one in verdicts if one.state == "broken"}
    assert kinds == found


class PermitsOfTheSandbox(GoodTool):
    """What is common to tools that mend or break how calls back off."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        result = await super().attempt(request, failed)
        if result.transient:
            await self.refused(result)
        return result

    async def refused(self, result: PeerResult) -> None:
        """What the tool does about a refusal before it tries again."""


class LeavesTheSandboxAlone(PermitsOfTheSandbox):
    """After a refusal none of its calls is sent for as long as Retry-After asks."""

    rests_until = 0.0

    async def pace(self, shared: Shared) -> None:
        while (left := self.rests_until - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110 - it may grow
            await asyncio.sleep(left)

    async def refused(self, result: PeerResult) -> None:
        self.rests_until = asyncio.get_running_loop().time() + result.retry_after


class PausesWithAPermit(PermitsOfTheSandbox):
    """It holds a permit while it backs off, if it was not told for how long."""

    async def refused(self, result: PeerResult) -> None:
        async with self.permit(self.shared()):
            await asyncio.sleep(0.0 if result.retry_after else 0.5)


class PausesWithAPermitAsAsked(PermitsOfTheSandbox):
    async def refused(self, result: PeerResult) -> None:
        async with self.permit(self.shared()):
            await asyncio.sleep(result.retry_after)


class ReleasesTwice(PermitsOfTheSandbox):
    async def refused(self, result: PeerResult) -> None:
        if result.outcome == "throttled":
            self.shared().gate.release()


class KeepsPermitsOfLostConnections(PermitsOfTheSandbox):
    async def refused(self, result: PeerResult) -> None:
        if result.may_have_run:
            await self.shared().gate.acquire()


class RetriesAtOnce(GoodTool):
    def pause(self, request: PeerRequest, number: int, result: PeerResult) -> float:
        return result.retry_after


class DeadlinePerAttempt(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        for number in itertools.count(1):
            result = await self.attempt(
                replace(request, left=self.config["call_deadline"] or 60.0), Counter()
            )
            if (
                not result.transient
                or result.may_have_run
                or result.retry_after > 30.0
                or number > 5
            ):
                return result
            await asyncio.sleep(self.pause(request, number, result))
        raise AssertionError


class FirstSandboxFirst(GoodTool):
    def choose(self, shared: Shared, failed: Counter[str]) -> str:
        return min(self.urls, key=lambda url: failed[url])


class FirstSandboxOnly(GoodTool):
    def choose(self, shared: Shared, failed: Counter[str]) -> str:
        return self.urls[0]


class LastOfAnyTrajectory(GoodTool):
    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        self.last[instance_id] = self.newest
        return await super().calc_reward(instance_id)

    def metrics(self, result: PeerResult) -> dict[str, Any] | None:
        self.newest = result
        return super().metrics(result)


class RewardOfWhatRanBefore(GoodTool):
    ignored = "sandbox_error"

    async def execute(
        self, instance_id: str, parameters: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        before = self.last.get(instance_id)
        answer = await super().execute(instance_id, parameters, **kwargs)
        result = self.last[instance_id]
        if before is not None and result is not None and result.outcome == self.ignored:
            self.last[instance_id] = before
        return answer


class RewardOfWhatWasRightBefore(RewardOfWhatRanBefore):
    ignored = "program_error"


class TruthWithinTheOutput(GoodTool):
    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        reward, result = await super().calc_reward(instance_id), self.last[instance_id]
        within = (
            result is not None
            and result.outcome == "ok"
            and self.truths[instance_id].strip() in result.stdout
        )
        return 1.0 if within else reward


class ReleasedComesBack(GoodTool):
    async def execute(
        self, instance_id: str, parameters: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        answer = await super().execute(instance_id, parameters, **kwargs)
        self.last.setdefault(instance_id, None)
        return answer


class ScoresNothing(GoodTool):
    """Returns what verl's ``BaseTool`` returns."""

    value = 0.0

    def step_reward(self, result: PeerResult) -> float | None:
        return self.value

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        return self.value


class ScoresEverything(ScoresNothing):
    value = 1.0


def test_a_tool_whose_rewards_are_all_zero_has_none() -> None:
    _, verdicts = played(lambda: ToolClient(ScoresNothing), "programs", "failures")
    assert broken(verdicts) == set()
    states = {one.promise: one.state for one in verdicts}
    assert states["reward_follows_the_end"] == states["infra_never_scored"] == "unknown"
    _, verdicts = played(lambda: ToolClient(ScoresEverything), "programs", "failures")
    assert broken(verdicts) >= {
        ("reward_follows_the_end", "whatever"),
        ("infra_never_scored", "failure_scored"),
    }


@pytest.mark.parametrize(
    ("tool", "scene", "found"),
    [
        (LeavesTheSandboxAlone, "backing-off", set()),
        (PausesWithAPermit, "backing-off", {("limit_used", "idle")}),
        (PausesWithAPermitAsAsked, "backing-off", {("limit_used", "idle")}),
        (ReleasesTwice, "backing-off", {("in_flight_within_limit", "over")}),
        (KeepsPermitsOfLostConnections, "backing-off", {("deadline_honoured", "never")}),
        (
            RetriesAtOnce,
            "failures",
            {("retry_after_honoured", "hammered"), ("only_transient_retried", "at_once")},
        ),
        (DeadlinePerAttempt, "patience", {("deadline_honoured", "late")}),
        (FirstSandboxFirst, "sandboxes", set()),  # the other is there for an outage
        (FirstSandboxOnly, "sandboxes", {("sandboxes_used", "unused")}),
        (LastOfAnyTrajectory, "instances", {("reward_follows_the_end", "varies")}),
        (RewardOfWhatRanBefore, "instances", {("infra_never_scored", "failure_scored")}),
        (RewardOfWhatWasRightBefore, "instances", {("reward_follows_the_end", "unearned")}),
        (TruthWithinTheOutput, "instances", {("reward_follows_the_end", "varies")}),
        (ReleasedComesBack, "instances", {("instances_released", "still_held")}),
    ],
)
def test_permits_deadlines_sandboxes_and_trajectories(
    tool: Any, scene: str, found: set[tuple[str, str]]
) -> None:
    _, verdicts = played(lambda: ToolClient(tool), scene)
    assert broken(verdicts) == found


def test_every_key_that_a_promise_needs_is_one_that_a_client_can_take() -> None:
    assert {key for promise in OF_SINGLE_CALLS for key in promise.takes} <= set(TAKES)
