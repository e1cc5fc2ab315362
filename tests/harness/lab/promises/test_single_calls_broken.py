"""Each promise about single calls is broken by a client with one mistake, and its finding names the
call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from sfusion.harness.core.verdict import Verdict
from sfusion.harness.lab.client import Returned, TrialAsk
from sfusion.harness.lab.shapes import shape_of
from sfusion.harness.lab.single_calls.suite import SuiteFacts
from sfusion.harness.trial.trial import bundled_scenes, check_facts, play_in_sim
from tests.harness.trial.estimators.right import by_mask
from tests.harness.trial.estimators.wrong import lone_raw, masked_only
from tests.harness.trial.test_sim import (
    FirstSandboxOnly,
    PausesWithAPermit,
    PlainClient,
    Scores,
    ScoresAnything,
)
from tests.proof.mistakes import MISTAKES
from tests.proof.tool_client import ToolClient
from tests.proof.trial import TrialCase, judged

MAKE = Callable[[], Any]


def found(make: MAKE, scene: str, promise: str, accepted: Any = None) -> Verdict:
    """Play a scene and return the first verdict on a promise."""
    scenes = [one for one in bundled_scenes() if one.scenario == f"judge-{scene}"]
    facts = SuiteFacts(play_in_sim(scenes, make).journals)
    facts.accepted = accepted
    return next(verdict for verdict in check_facts(facts) if verdict.promise == promise)


def assert_broken(verdict: Verdict) -> None:
    assert (verdict.state, bool(verdict.evidence)) == ("broken", True), verdict


class WrongExit(PlainClient):
    async def run(self, ask: TrialAsk) -> str:
        result = await self.send(ask.code)
        code = result["return_code"]
        return f"{result['stdout']}{result['stderr']}" + (f"\n(exit {code + 1})" if code else "")


class OnlyStdout(PlainClient):
    async def run(self, ask: TrialAsk) -> str:
        return str((await self.send(ask.code))["stdout"])


class Alters(PlainClient):
    takes = PlainClient.takes | {"arguments"}

    async def call(self, ask: TrialAsk) -> Returned:
        if not ask.code:
            return Returned("refused", altered="{} became {'code': ''}")
        return await super().call(ask)


class AlwaysRight(PlainClient):
    takes = PlainClient.takes | {"reward"}

    async def call(self, ask: TrialAsk) -> Returned:
        return Returned(await self.run(ask), reward=1.0)


class LeavesTasks(PlainClient):
    async def run(self, ask: TrialAsk) -> str:
        self.tasks = [*getattr(self, "tasks", []), asyncio.ensure_future(asyncio.Event().wait())]
        return await super().run(ask)


class SwallowsCancellation(PlainClient):
    takes = PlainClient.takes | {"cancel"}

    async def run(self, ask: TrialAsk) -> str:
        try:
            return await super().run(ask)
        except asyncio.CancelledError:
            return "cancelled"


class SendsEverySecond(PlainClient):
    sent = 0

    async def run(self, ask: TrialAsk) -> str:
        self.sent += 1
        return await super().run(ask) if self.sent % 2 else "no time"


class OneByOne(PlainClient):
    turn: asyncio.Lock

    async def run(self, ask: TrialAsk) -> str:
        if "turn" not in vars(self):
            self.turn = asyncio.Lock()
        async with self.turn:
            return await super().run(ask)


class SleepsInTheLoop(PlainClient):
    async def run(self, ask: TrialAsk) -> str:
        time.sleep(0.1)  # noqa: ASYNC251 - the mistake; the clock is virtual
        return await super().run(ask)


def test_calls_overlap() -> None:
    for client, kind in ((OneByOne, "one_by_one"), (SleepsInTheLoop, "slept")):
        verdict = found(client, "wide", "calls_overlap")
        assert_broken(verdict)
        assert verdict.how.kind == kind
    assert found(PlainClient, "wide", "calls_overlap").held


def test_exit_code_told() -> None:
    verdict = found(WrongExit, "programs", "exit_code_told")
    assert_broken(verdict)
    assert "programs c0004" in verdict.sentence
    assert "[played: a program that prints 8 lines to stdout" in verdict.sentence
    assert "sent once, answered 200; returned" in verdict.sentence
    case = verdict.how.details["case"]
    assert (case["call"], case["sent"]) == ("programs c0004", "sent once, answered 200")
    assert len(case["returned"]) > len(verdict.sentence), "the case has all of what came back"


def test_ends_told_apart() -> None:
    assert_broken(found(OnlyStdout, "programs", "ends_told_apart"))


def test_wordings_accepted() -> None:
    assert_broken(found(PlainClient, "idle", "wordings_accepted", accepted={"ok": ["other"]}))
    assert found(PlainClient, "idle", "wordings_accepted", accepted={"ok": [""]}).held


def test_arguments_unchanged() -> None:
    assert_broken(found(Alters, "programs", "arguments_unchanged"))


def test_reward_follows_the_end() -> None:
    assert_broken(found(AlwaysRight, "programs", "reward_follows_the_end"))


def test_score_follows_the_tests() -> None:
    assert found(ScoresAnything, "tests", "score_follows_the_tests").state == "broken"
    assert found(Scores, "tests", "score_follows_the_tests").held


def test_nothing_left_behind() -> None:
    assert_broken(found(LeavesTasks, "idle", "nothing_left_behind"))


def test_cancellation_ends_a_call() -> None:
    assert_broken(found(SwallowsCancellation, "cancelled", "cancellation_ends_a_call"))


def test_programs_waited_for() -> None:
    assert_broken(found(SendsEverySecond, "idle", "programs_waited_for"))


def test_limit_used() -> None:
    assert_broken(found(lambda: ToolClient(PausesWithAPermit), "backing-off", "limit_used"))


def test_sandboxes_used() -> None:
    verdict = found(lambda: ToolClient(FirstSandboxOnly), "sandboxes", "sandboxes_used")
    assert verdict.state == "broken"


def test_sent_in_order() -> None:
    name = "the last waiter is served first"
    kind: Any = "named" if name in MISTAKES else "drawn"
    names = (name, f"step {name}")
    caught = [judged(TrialCase(kind, one), "limit") for one in names if _is_known(kind, one)]
    assert any("sent_in_order" in row.caught_by for row in caught)


def _is_known(kind: str, name: str) -> bool:
    from tests.proof.mutations import drawn

    return name in (MISTAKES if kind == "named" else {one.name for one in drawn()})


def test_lost_samples_left_out() -> None:
    for function, state in ((masked_only, "broken"), (by_mask, "held")):
        verdict = found(shape_of(function).make, "lost-by-mask", "lost_samples_left_out")
        assert verdict.state == state


def test_no_lesson_without_siblings() -> None:
    for function, state in ((lone_raw, "broken"), (by_mask, "held")):
        verdict = found(shape_of(function).make, "lost-by-mask", "no_lesson_without_siblings")
        assert verdict.state == state
