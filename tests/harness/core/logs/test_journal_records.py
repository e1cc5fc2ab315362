"""Journals of runs and of proxies as call records."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.core.journal import Journal
from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.lab.runs import run_scenario
from sfusion_tools import record
from sfusion_tools.record import Call

SCENARIO = """
scenario: some-of-everything
about: Two sandboxes, faults, refused and malformed calls.
seed: 3
sandbox: {instances: 2, faults: [{name: busy, every: 5, what: {status: 429, retry_after: 1}}]}
tools: {rate_limit: 4}
load: {calls: 40, concurrency: 8, program: {seconds: 0.5, prints: "ok"}}
promises: [every_call_ends_once]
"""


def read(path: Path, lines: list[dict[str, Any]]) -> list[Call]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(read_records([path]))


def test_a_run_is_read_as_its_client_saw_it(tmp_path):
    (result,) = run_scenario(SCENARIO)
    result.journal.write(tmp_path / "journal.ndjson")
    records = list(read_records([tmp_path]))
    journal = Journal.read(tmp_path / "journal.ndjson")
    assert len(records) == 40
    assert {one.source for one in records} == {"client"}
    assert Counter(one.outcome for one in records) == Counter(
        event["outcome"] for event in journal.events if event["event"] == "returned"
    )
    attempts = [attempt for one in records for attempt in one.attempts]
    started = [event for event in journal.events if event["event"] == "attempt_started"]
    assert Counter(one.endpoint for one in attempts) == Counter(
        event["endpoint"] for event in started
    )
    assert len({one.endpoint for one in attempts}) == 2
    refused = [one for one in attempts if one.status == 429]
    assert refused
    assert {(one.fault, one.retry_after, one.outcome) for one in refused} == {
        ("busy", 1.0, "throttled")
    }
    assert {one.fault for one in attempts if one.status == 200} == {None}
    assert max(one.waited for one in attempts) > 0
    assert all(one.seconds >= 0.5 for one in records)
    assert all(one.worker for one in records)


def test_a_journal_that_was_cut_in_the_middle_has_unfinished_calls(tmp_path):
    (result,) = run_scenario(SCENARIO)
    lines = list(result.journal.lines())
    path = tmp_path / "journal.ndjson"
    path.write_text("".join(lines[: len(lines) // 2])[:-7])
    records = list(read_records([path]))
    unfinished = [one for one in records if one.seconds is None]
    assert 0 < len(unfinished) < len(records)
    assert {one.outcome for one in unfinished} == {None}


def test_a_proxy_journal_has_one_call_for_each_request(tmp_path):
    faults = [
        {"name": "gateway", "code": "c2", "what": {"status": 502}},
        {"name": "cut", "code": "c3", "what": "reset"},
    ]
    events: list[dict[str, Any]] = []

    async def run() -> None:
        async with (
            FakeSandbox(executor="scripted") as sandbox,
            FaultProxy(
                sandbox.url,
                faults=faults,
                journal=lambda event: events.append({**event, "at": time.time()}),
            ) as proxy,
            aiohttp.ClientSession() as session,
        ):
            for call in ("c1", "c2", "c3"):
                body = {"code": f"# sfusion:call={call}", "language": "python"}
                try:
                    async with session.post(f"{proxy.url}/run_code", json=body) as answer:
                        await answer.read()
                except aiohttp.ClientError:
                    assert call == "c3"

    before = time.time()
    asyncio.run(run())
    records = read(tmp_path / "proxy.ndjson", events)
    found = {
        one.call: (one.source, one.outcome, one.attempts[0].status, one.attempts[0].fault)
        for one in records
    }
    assert found == {
        "c1": ("server", None, 200, None),
        "c2": ("server", "sandbox_error", 502, "gateway"),
        "c3": ("server", "unreachable", None, "cut"),
    }
    assert all(before <= one.began and one.seconds >= 0 for one in records)


def test_calls_of_other_tools_take_their_attempts_from_the_server(tmp_path):
    base = {"source": "server", "call": "c1", "attempt": 1}
    (call,) = read(
        tmp_path / "journal.ndjson",
        [
            {"journal": 2, "scenario": "s"},
            {"at": 0, "source": "world", "event": "called", "call": "c1", "worker": "n1-w1"},
            {"at": 1, "event": "arrived", **base},
            {
                "at": 3,
                "event": "answered",
                **base,
                "status": 429,
                "retry_after": "Thu, 01 Jan 1970",
            },
            {"at": 4, "source": "world", "event": "returned", "call": "c1", "outcome": None},
            {"at": 5, "event": "strike", **base},
        ],
    )
    (attempt,) = call.attempts
    assert (call.began, call.seconds, call.outcome, call.worker) == (0, 4, None, "n1-w1")
    assert (attempt.after, attempt.seconds, attempt.status, attempt.outcome) == (
        1,
        2,
        429,
        "throttled",
    )


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"event": "permit_granted", "waited": -2}, "waited"),
        ({"event": "backing_off", "attempt": 1, "seconds": -2}, "seconds"),
    ],
)
def test_a_negative_wait_of_a_client_is_refused(tmp_path, wrong, key):
    base = {"source": "client", "call": "c1"}
    events = [
        {"at": 0, "event": "call_started"},
        {"at": 1, **wrong},
        {"at": 3, "event": "call_ended"},
    ]
    path = tmp_path / "journal.ndjson"
    path.write_text("".join(json.dumps({**base, **event}) + "\n" for event in events))
    problems: list[str] = []
    (call,) = read_records([path], problems.append)
    assert call.seconds == 3
    assert problems == [f"{path}:2: {key} must not be negative, found -2"]


def test_the_seconds_of_a_clock_that_is_set_back_are_negative(tmp_path):
    jump = {"at": 0, "source": "world", "event": "clock_jumped", "seconds": -3600}
    assert read(tmp_path / "journal.ndjson", [{"journal": 2, "scenario": "s"}, jump]) == []


@pytest.mark.parametrize("source", ["server", "client"])
def test_calls_without_an_end_do_not_fill_the_memory(tmp_path, monkeypatch, source):
    monkeypatch.setattr(record, "MOST_OPEN", 3)
    kind = {"server": "arrived", "client": "call_started"}[source]
    calls = record.CallFold()
    for number in range(10):
        found = list(
            calls.add(
                {"at": number, "source": source, "event": kind, "call": f"c{number}", "attempt": 1}
            )
        )
        assert [one.call for one in found] == ([f"c{number - 3}"] if number >= 3 else [])
    assert [(one.call, one.seconds) for one in calls.rest()] == [
        ("c7", None),
        ("c8", None),
        ("c9", None),
    ]
