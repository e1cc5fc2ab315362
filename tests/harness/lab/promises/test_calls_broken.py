"""Promises about calls and their attempts, each broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion.harness.lab.promises import check_promises
from sfusion.harness.lab.worlds import sim
from sfusion_tools import runner as runner_module
from sfusion_tools.sandbox import client as client_module
from sfusion_tools.sandbox import tool as tool_module
from sfusion_tools.sandbox.retry import RetryPolicy
from tests.harness.lab.promises.scenes import broken_in, scene


def test_every_call_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient.run

    async def forgetful(self: Any, program: Any, **options: Any) -> Any:
        if options["result"].call_id == "c0005":
            await asyncio.get_running_loop().create_future()
        return await real(self, program, **options)

    monkeypatch.setattr(client_module.SandboxClient, "run", forgetful)
    broken = broken_in(scene(horizon="200s"))
    assert set(broken) == {"every_call_ends_once", "deadline_honoured", "no_stall", "outcomes"}
    assert broken["every_call_ends_once"].sentence == "call c0005 never ended"
    assert "1 of 24 calls ended unfinished" in broken["outcomes"].sentence


def test_every_call_ends_once_and_sends_nothing_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient.run

    async def heedless(self: Any, program: Any, **options: Any) -> Any:
        return await asyncio.shield(real(self, program, **options))

    monkeypatch.setattr(client_module.SandboxClient, "run", heedless)
    giving_up = {
        "calls": 24,
        "concurrency": 12,
        "program": {"seconds": "100ms"},
        "cancel": {"after": "150ms"},
    }
    broken = broken_in(scene(load=giving_up))
    assert "sent a request" in broken["every_call_ends_once"].sentence
    assert "after it had ended" in broken["every_call_ends_once"].sentence


def test_tool_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner_module.model_text

    def fragile(result: Any, *args: Any, **options: Any) -> str:
        if result.call_id == "c0007":
            raise RuntimeError("boom")
        return real(result, *args, **options)

    monkeypatch.setattr(runner_module, "model_text", fragile)
    scenario = scene()
    broken = broken_in(scenario)
    assert set(broken) == {"tool_never_raises", "outcomes"}
    assert broken["tool_never_raises"].sentence.startswith(
        "the tool raised RuntimeError: boom (c0007, test_calls_broken.py:"
    )
    found = check_promises(sim.run(scenario), scenario.promises)
    assert [one.promise for one in found] == ["every_call_ends_once", "tool_never_raises"], (
        "also if it is not named"
    )


def test_tool_never_raises_when_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fragile(self: object, instance_id: str, **_: Any) -> None:
        raise RuntimeError(f"\x1b[31m{instance_id}\x1b[0m")

    monkeypatch.setattr(tool_module.SandboxFusionTool, "release", fragile)
    sentence = broken_in(scene())["tool_never_raises"].sentence
    assert sentence.startswith("the tool raised RuntimeError: c0001 (c0001, test_calls_broken.py:")


def test_outcomes() -> None:
    faulty = scene(sandbox={"faults": [{"call": "c0003", "what": "sandbox_error"}]})
    broken = broken_in(faulty)
    assert set(broken) == {"outcomes"}
    assert "1 of 24 calls ended sandbox_error" in broken["outcomes"].sentence
    assert any(event.get("call") == "c0003" for event in broken["outcomes"].evidence)


def test_attempts_per_call() -> None:
    # The tool's own limit on attempts is raised above that of the promise.
    stubborn = scene(
        sandbox={"faults": [{"first_attempts": 8, "call": "c0003", "what": {"status": 503}}]},
        tools={"rate_limit": 3, "max_attempts": 12, "call_deadline": 1000},
    )
    broken = broken_in(stubborn)
    assert set(broken) - {"throughput_at_least"} == {"attempts_per_call"}
    assert "call c0003 made 9 attempts" in broken["attempts_per_call"].sentence


def test_attempts_per_call_leaves_out_orders_to_wait() -> None:
    busy = {"first_attempts": 8, "call": "c0003", "what": {"status": 429, "retry_after": 1}}
    assert "attempts_per_call" not in broken_in(
        scene(sandbox={"faults": [busy]}, tools={"call_deadline": 1000})
    )
    busy["what"] = {"status": 429}
    eager = {"call_deadline": 1000, "max_attempts": 12}
    assert "attempts_per_call" in broken_in(scene(sandbox={"faults": [busy]}, tools=eager))


def test_retry_after_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, call_id, attempt, retry_after: 0.5)
    busy = scene(
        sandbox={
            "faults": [{"first_attempts": 1, "every": 3, "what": {"status": 429, "retry_after": 4}}]
        }
    )
    broken = broken_in(busy)
    assert set(broken) == {"retry_after_honoured"}
    assert "s before its Retry-After was over" in broken["retry_after_honoured"].sentence


def test_deadline_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    real = client_module.SandboxClient._send

    async def patient(self: Any, session: Any, address: Any, body: bytes, seconds: float) -> Any:
        return await real(self, session, address, body, seconds * 40)

    monkeypatch.setattr(client_module.SandboxClient, "_send", patient)
    hanging = scene(
        sandbox={"faults": [{"call": "c0004", "what": "hang"}]}, tools={"default_timeout": 5}
    )
    broken = broken_in(hanging)
    assert "deadline_honoured" in broken
    assert set(broken) <= {"deadline_honoured", "no_stall", "outcomes", "throughput_at_least"}
    assert broken["deadline_honoured"].sentence.startswith("call c0004 took")


def test_no_duplicate_execution() -> None:
    twice = scene(
        sandbox={
            "faults": [{"first_attempts": 1, "every": 4, "phase": "after", "what": {"status": 504}}]
        }
    )
    broken = broken_in(twice)
    assert set(broken) == {"no_duplicate_execution"}
    assert "was executed 2 times" in broken["no_duplicate_execution"].sentence
