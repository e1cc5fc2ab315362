"""A client is judged by what really happened, not by what was planned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from sfusion.harness.lab.client import Returned, TrialAsk
from sfusion.harness.lab.promises.wordings import code_slots
from sfusion.harness.lab.shapes.results import raised
from sfusion.harness.lab.single_calls.suite import SuiteFacts
from tests.harness.trial.test_sim import PlainClient, played
from tests.proof.right_tools import RIGHT_TOOLS
from tests.proof.tool_client import ToolClient


class Patient(PlainClient):
    """Tries again for a few seconds while nothing listens."""

    async def run(self, ask: TrialAsk) -> str:
        for _ in range(20):
            try:
                return await super().run(ask)
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.5)
        return "nothing listens"


def ends_of_outage(seconds: float) -> tuple[list[str], list[str]]:
    """Return how the calls of an outage ended, and what is broken."""
    scenes, verdicts = played(
        Patient, "down", events=[{"at": 0.0, "crash": "sandbox", "seconds": seconds}]
    )
    ends = [call.end for call in SuiteFacts(scenes.journals)]
    return ends, [verdict.sentence for verdict in verdicts if verdict.state == "broken"]


def test_a_call_that_outlives_an_outage_is_judged_as_the_success_that_it_was() -> None:
    assert ends_of_outage(3.0) == (["ok", "ok", "ok"], [])


def test_a_call_planned_for_after_an_outage_is_not_judged_by_a_result_that_it_cannot_have() -> None:
    assert ends_of_outage(900.0) == (["not_run", "not_run", "failed"], [])


def slots(*told: tuple[str, int]) -> set[str]:
    return set(code_slots(told))


def test_numbers_that_count_runs_or_attempts_are_no_exit_codes() -> None:
    assert slots(("[failed; run 1 of 6]", 2), ("[failed; run 2 of 6]", 2)) == set()
    same = [(f"[failed; run {code} of 6]", code) for code in (2, 3)]
    assert slots(*same, ("[failed; run 7 of 6]", 3)) == set()
    assert slots(*(("[failed; attempt 1 of 3]", code) for code in (1, 2, 3))) == set()


def test_numbers_that_follow_the_exit_code_are_exit_codes_right_or_wrong() -> None:
    right = [("exit 2, run 1", 2), ("exit 3, run 2", 3), ("exit 7, run 3", 9)]
    assert slots(*right) == {"exit "}
    assert slots(("exit 3", 2), ("exit 4", 3), ("exit 4", 3)) == {"exit "}
    assert slots(*(("exit 1", code) for code in (1, 2, 3))) == {"exit "}


class ForEver(PlainClient):
    """Tries again after a refusal until it is accepted, at once or after a while."""

    pause = 0.0

    async def run(self, ask: TrialAsk) -> str:
        while True:
            try:
                return await super().run(ask)
            except aiohttp.ClientResponseError:
                await asyncio.sleep(self.pause)


class ForEverSlowly(ForEver):
    pause = 5.0


@pytest.mark.parametrize("client", [ForEver, ForEverSlowly])
def test_a_client_that_never_gives_up_is_cut_off_and_told(client: type[ForEver]) -> None:
    refused = {"end": "throttled", "prints": "{word}\n", "fault": {"what": {"status": 429}}}
    fine = {"end": "ok", "prints": "{word}\n"}
    scenes, verdicts = played(client, "dates", load={"each": [refused, fine]})
    late = next(verdict for verdict in verdicts if verdict.promise == "deadline_honoured")
    assert (late.state, late.how.kind) == ("broken", "never")
    assert "cut off because it was sent 100x" in late.sentence
    ended = [call.ended_at is not None for call in SuiteFacts(scenes.journals)]
    assert ended == [False, True]


class ProgramFailed(Exception):
    """Carries all of it, as `subprocess.CalledProcessError` does."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(f"the program ended with {result['status']}")
        self.returncode = result["return_code"]
        self.stdout = result["stdout"]
        self.stderr = result["stderr"]


class Lossy(Exception):
    """Carries the code, and nothing of the output."""


class Checked(PlainClient):
    """Raises where a program fails."""

    error: Callable[[dict[str, Any]], Exception] = ProgramFailed

    async def call(self, ask: TrialAsk) -> Returned:
        try:
            return await super().call(ask)
        except Exception as error:
            return raised(error)

    async def run(self, ask: TrialAsk) -> str:
        result = await self.send(ask.code)
        if result["return_code"] != 0:
            raise type(self).error(result)
        return str(result["stdout"])


class CheckedBadly(Checked):
    error = staticmethod(lambda result: Lossy(f"exit code {result['return_code']}"))


def test_an_exception_for_a_failing_program_is_right_if_it_carries_output_and_code() -> None:
    _, verdicts = played(Checked, "programs")
    assert [one.state for one in verdicts if one.promise == "tool_never_raises"] == ["held"]
    _, verdicts = played(CheckedBadly, "programs")
    found = next(one for one in verdicts if one.promise == "tool_never_raises")
    assert (found.state, found.how.kind) == ("broken", "raised_single")
    assert "if the exception carries all output and the exit code" in found.sentence


class CarriesStderr(Checked):
    error = staticmethod(
        lambda result: Lossy(f"exit code {result['return_code']}: {result['stderr']}")
    )


def test_the_example_of_an_exception_that_lacks_something_lacks_it() -> None:
    """The first program that fails prints to stderr alone, a later one to stdout too."""
    whole = {"end": "program_error", "errors": "{word}", "exit": 3}
    lacking = {"end": "program_error", "prints": "{word}", "errors": "{word:err}", "exit": 3}
    _, verdicts = played(CarriesStderr, "dates", load={"each": [whole, lacking]})
    found = next(one for one in verdicts if one.promise == "tool_never_raises")
    assert found.state == "broken"
    assert found.how.details["case"]["call"] == "dates c0002"


def test_a_client_that_never_tries_another_sandbox_is_not_said_to_use_them() -> None:
    _, verdicts = played(lambda: ToolClient(RIGHT_TOOLS["one attempt only"]), "sandboxes")
    found = next(one for one in verdicts if one.promise == "sandboxes_used")
    assert (found.state, found.how.kind) == ("unknown", "gives_up")


def test_ends_that_were_not_played_are_named_where_the_others_are_told_apart() -> None:
    tool = RIGHT_TOOLS["terse"]
    _, verdicts = played(lambda: ToolClient(tool), "failures")
    found = next(one for one in verdicts if one.promise == "ends_told_apart")
    assert found.held
    assert "not played: program_error, timeout, compile_error, compiler_timeout" in found.sentence
