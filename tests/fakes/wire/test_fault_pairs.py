"""Two rules that strike one attempt: the table of docs/fake-sandbox.md, and no strike without an
effect."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from sfusion.fakes.faults import KINDS, PHASES, Arrival, FaultError, FaultPlan, Phase, read_rule
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from tests.fakes.sandbox.memory import MemoryConnection
from tests.fakes.wire.raw import run_code

STRIKES = [(kind, phase) for kind, action in KINDS.items() for phase in action.phases]
LONGER_THAN_THE_PROGRAM = {"delay": "60s", "degrade": {"start": "50s", "end": "50s", "over": 1}}
WHAT: dict[str, Any] = {
    **LONGER_THAN_THE_PROGRAM,
    "status": 503,
    "content_type": "text/html",
    "drip": {"bytes": 5, "every": "1s"},
    "output": {"what": "huge", "size": 10},
    "timeout": {"stdout": "partial"},
    "wedge": "20s",
    "hang": "100s",
}
PROGRAM = run_code('# sfusion:call=c1 prints="hello\\n" seconds=1')
Seen = tuple[Any, ...]


def rule(name: str, kind: str, phase: Phase) -> dict[str, Any]:
    return {"name": name, "phase": phase, "what": {kind: WHAT.get(kind, True)}}


async def _observe(rules: list[dict[str, Any]]) -> tuple[Seen, frozenset[str]]:
    """Send one request; return what its client and the whole server see, and the rules that struck
    by the journal."""
    events: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    sandbox = FakeSandbox(faults=rules, journal=events.append)
    sandbox.server.attach()
    connection = MemoryConnection(sandbox.server)
    connection.send(PROGRAM)
    begun = loop.time()
    await asyncio.sleep(1000.0)
    received = re.sub(rb"date: [^\r]*\r\n", b"", connection.received)
    times = [
        event["at"] - begun for event in events if event["event"] in ("crash", "wedge", "unwedge")
    ]
    at = [
        None if when is None else round(when - begun, 6)
        for when in (connection.received_at, connection.closed_at)
    ]
    if received and connection.closed_at is not None and not connection.was_reset:
        at[1] = None  # closed because it was idle
    seen = (
        received,
        *at,
        connection.was_reset,
        [round(one, 6) for one in times],
        sandbox.ledger.finished,
    )
    await sandbox.stop(grace=0.0)
    return seen, frozenset(event["rule"] for event in events if event["event"] == "strike")


@cache
def alone(kind: str, phase: Phase) -> Seen:
    return run_virtually(_observe([rule("only", kind, phase)]))[0]


def ordered_pairs() -> Iterable[tuple[tuple[str, Phase], tuple[str, Phase]]]:
    return ((one, other) for one in STRIKES for other in STRIKES)


def test_every_strike_in_the_journal_of_two_rules_has_an_effect() -> None:
    idle = []
    for one, other in ordered_pairs():
        seen, struck = run_virtually(_observe([rule("one", *one), rule("other", *other)]))
        if struck == {"one", "other"}:
            idle += [(one, other) for _ in range(seen in (alone(*one), alone(*other)))]
        else:
            assert seen == alone(*(one if struck == {"one"} else other)), (one, other, struck)
    assert idle == []


@pytest.mark.parametrize("phase", PHASES)
def test_of_two_final_faults_in_a_phase_the_first_rule_strikes_and_the_other_is_not_counted(
    phase: Phase,
) -> None:
    for kind, action in KINDS.items():
        for other, second in KINDS.items():
            if phase not in action.phases or phase not in second.phases:
                continue
            plan = FaultPlan(
                [read_rule(rule("one", kind, phase)), read_rule(rule("two", other, phase))]
            )
            fate = plan.fate(Arrival("c"))
            assert fate is not None
            struck = [strike.rule for strike in fate.at(phase, 0.0)]
            if (action.final and second.final) or (kind == other and not action.adds):
                assert struck == ["one"]
            elif action.final:
                assert struck == (["one"] if second.changes_answer else ["two", "one"])
            elif second.final:
                assert struck == (["two"] if action.changes_answer else ["one", "two"])
            else:
                assert struck == ["one", "two"]
            assert plan.strikes() == {name: int(name in struck) for name in ("one", "two")}


@pytest.mark.parametrize(
    "other", [{"degrade": {"start": "2s", "end": "2s", "over": 1}}, {"wedge": "2s"}]
)
def test_a_status_keeps_its_effect_beside_a_slow_server(other: dict[str, Any]) -> None:
    for rules in (
        [{"what": {"status": 503}}, {"what": other}],
        [{"what": other}, {"what": {"status": 503}}],
    ):
        seen, struck = run_virtually(_observe(rules))
        assert seen[0].startswith(b"HTTP/1.1 503"), rules
        assert seen[1] == 2.0
        assert seen[-1] == 0, "the code did not run"
        assert len(struck) == 2


def test_delays_of_a_connection_add_up() -> None:
    delays = [{"phase": "connect", "what": {"delay": delay}} for delay in ("1s", "2s")]
    answered = run_virtually(_observe(delays))[0][1]
    assert answered == 4.0, "1 + 2 s, then the program's second"
    reset = run_virtually(_observe([*delays, {"phase": "connect", "what": "reset"}]))[0]
    assert reset[2:4] == (3.0, True)


@pytest.mark.parametrize("last", ["close", "reset", "crash"])
def test_a_connection_that_breaks_after_a_delay_runs_nothing(last: str) -> None:
    rules = [{"phase": "connect", "what": {"delay": "1s"}}, {"phase": "connect", "what": last}]
    seen, struck = run_virtually(_observe(rules))
    assert (seen[-1], len(struck)) == (0, 2)


def test_a_rule_with_two_final_faults_in_one_phase_is_refused() -> None:
    with pytest.raises(FaultError, match="status and reset both end the request in phase 'before'"):
        read_rule({"what": {"status": 503, "reset": True}})
