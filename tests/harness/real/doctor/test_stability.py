"""Sandboxes that fail occasionally or stop working: the doctor still ends with a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.real.doctor.examination import CHECKS as ALL
from sfusion.harness.real.doctor.settings import Plan
from tests.harness.real.doctor.servers import (
    GREETS,
    PATIENT,
    breaking,
    examined,
    ids,
    only,
    scripted,
    seen,
    severity,
)
from tests.sfusion_tools.sandbox.helpers import virtually

PLAN = Plan(
    patience=1.0,
    per_check=20.0,
    quick=True,
    timed_out_after=0.1,
    languages=("bash",),
    packages=["json"],
)
CHECKS = only("connection", "ping", "run_code", "memory limit", "languages", "stability")


@pytest.mark.parametrize("what", [{"status": 503}, {"reset": True}, {"malformed": "status_line"}])
async def test_occasional_failures_are_counted_and_cause_no_other_finding(
    what: dict[str, Any],
) -> None:
    flaky = {"every": 3, "what": what}
    async with FakeSandbox(executor="python", faults=[flaky]) as sandbox:
        result = await examined(
            sandbox.url, replace(PATIENT, pause=0.0, languages=("bash",)), checks=CHECKS
        )
        assert breaking(result) == []
        assert severity(result, "unsteady") == "hurts"
        assert " programs, sent a few at a time, got no answer from the sandbox: " in seen(
            result, "unsteady"
        )


@pytest.mark.parametrize(
    "what",
    [{"status": 503}, {"status": 429, "retry_after": 0.01}, {"status": 500}, {"reset": True}],
)
async def test_one_failure_of_the_first_program_is_retried(what: dict[str, Any]) -> None:
    async with FakeSandbox(executor="python", faults=[{"first": 1, "what": what}]) as sandbox:
        result = await examined(
            sandbox.url, replace(PATIENT, pause=0.0, languages=("bash",)), checks=CHECKS
        )
        assert breaking(result) == []
        assert "1 of " in seen(result, "unsteady")


async def test_a_stable_sandbox_is_not_called_unsteady() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        plan = replace(PATIENT, languages=("bash",))
        result = await examined(sandbox.url, plan, checks=CHECKS, memory_limit_mb=-1)
        assert ids(result) == set()


@pytest.mark.parametrize(
    "what", ["crash", {"wedge": {"ping": "alive"}}, {"wedge": {"ping": "dead"}}], ids=str
)
@virtually
async def test_a_sandbox_that_dies_during_the_examination_is_reported(what: Any) -> None:
    plan = Plan(patience=0.5, seconds=0.5, packages=["json"])
    checks = only("connection", "ping", "run_code", "packages", "long output", "stability")
    async with scripted(faults=[{"after": 2, "what": what}]) as sandbox:
        result = await examined(sandbox.url, plan, checks=checks)
        assert breaking(result) == ["stops-answering"]
        assert "then stopped answering during the check `long output`" in seen(
            result, "stops-answering"
        )
        assert ("stability", "it stopped answering") in result.not_examined


@virtually
async def test_a_check_that_hangs_on_a_dead_sandbox_is_reported() -> None:
    plan = Plan(patience=0.5, per_check=0.5, packages=["json"])
    async with scripted(faults=[{"after": 1, "what": "wedge"}]) as sandbox:
        result = await examined(
            sandbox.url, plan, checks=only("connection", "ping", "run_code", "packages")
        )
        assert breaking(result) == ["stops-answering"]
        assert "abandoned after 0.5 s" in seen(result, "stops-answering")


@pytest.mark.parametrize("what", ["crash", {"wedge": {"ping": "alive"}}])
@virtually
async def test_a_sandbox_that_dies_under_load_is_reported(what: Any) -> None:
    dies = {"above_in_flight": 3, "what": what}
    async with scripted(faults=[dies]) as sandbox:
        plan = Plan(patience=1.0, levels=8, sweep_sleep=0.05)
        result = await examined(
            sandbox.url, plan, checks=only("connection", "ping", "run_code", "throughput")
        )
        assert breaking(result) == ["stops-answering"]
        assert "then stopped answering during the check `throughput`" in seen(
            result, "stops-answering"
        )


@virtually
async def test_a_sandbox_that_hangs_on_one_program_is_not_called_dead() -> None:
    stuck = {"code": "doctor-output-20000", "what": {"status": 502}}
    async with scripted(faults=[stuck]) as sandbox:
        result = await examined(
            sandbox.url, PLAN, checks=only("connection", "ping", "run_code", "long output")
        )
        assert result.not_examined == [("long output", "no answer in 3 attempts: status 502")]
        assert breaking(result) == []


ANY_FAULT: list[Any] = [
    {"status": 418},
    {"status": 200, "body": "[]"},
    {"status": 200, "body": {"status": "Success", "run_result": None}},
    {"delay": "0.2s"},
    {"hang": "0.1s"},
    "reset",
    "close",
    {"truncate": 0.5},
    {"drip": {"bytes": 40, "every": "0.01s"}},
    {"malformed": "chunk"},
    {"malformed": "json"},
    {"malformed": "header"},
    {"malformed": "status_line"},
    {"content_type": "text/html"},
    "sandbox_error",
    {"timeout": {"stdout": "x"}},
    {"output": "lost"},
    {"output": "null"},
    {"output": "cut"},
    {"output": {"what": "huge", "size": 100_000}},
    {"output": "not_utf8"},
    {"output": "decode_error"},
    "crash",
    "wedge",
]


@pytest.mark.parametrize("what", ANY_FAULT, ids=str)
@virtually
async def test_there_is_a_report_whatever_the_server_does(what: Any) -> None:
    plan = Plan(
        patience=0.4,
        per_check=3.0,
        seconds=0.3,
        timed_out_after=0.1,
        languages=(),
        packages=["json"],
        burst=3,
        levels=2,
        sweep_sleep=0.01,
        pause=0.0,
    )
    prints: list[Any] = [GREETS, {"pattern": "json.dumps", "prints": "[]\n"}]
    async with FakeSandbox(
        executor="scripted", scripts=prints, faults=[{"every": 2, "what": what}]
    ) as sandbox:
        result = await examined(sandbox.url, plan, default_timeout=0.2)
        assert "run_code" in result.examined
        assert len(result.examined) + len(result.not_examined) == len(ALL)
        assert all(
            finding.seen and finding.training and finding.change for finding in result.findings
        )
