"""The incident library: reports are really played, our stack keeps its promises, and the mistake
breaks one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sfusion.harness.lab.promises import Verdict, check_promises
from sfusion.harness.lab.scenarios import Scenario, bundled_folder, read_scenarios
from sfusion.harness.lab.scenarios.reading import in_folder
from sfusion.harness.lab.worlds import sim, worker_rollouts
from sfusion_tools.rollout import AsyncRolloutRequest, RolloutLimits
from tests import ROOT
from tests.docs.tables import updated
from tests.harness.lab.scenarios import reported_tools as reported
from tests.harness.lab.scenarios.test_own_tools import SCHEMA

FILES = {path.stem: path for path in in_folder(bundled_folder() / "incidents")}
HAPPENED = {
    "kill": {"killed", "limiter_died"},
    "crash": {"crash"},
    "wedge": {"wedge"},
    "cancel": {"cancelled"},
}
"""The journal's events for the events that incidents have."""


@dataclass(frozen=True)
class Mistake:
    """What the stack of a report did wrong, and the promise that breaks by it."""

    promise: str
    tool: type | None = None
    settings: dict[str, Any] | None = None
    """Keys of our own tool."""
    parser: str = ""
    core: Any = None
    limits: dict[str, Any] | None = None
    """Limits of rollouts that are really in force."""
    keys: dict[str, Any] | None = None
    """Other keys of the scenario; a function gets what the scenario has."""
    tokenized_again: bool = False


def with_tool(promise: str, tool: type, **keys: Any) -> Mistake:
    return Mistake(promise, tool=tool, keys=keys)


def with_settings(promise: str, **settings: Any) -> Mistake:
    return Mistake(promise, settings=settings)


NO_RETRY = with_settings("outcomes", max_attempts=1)
NO_LIMITS = Mistake("rollout_ends", limits={}, keys={"horizon": "10s"})
DROPS = Mistake("outcomes", parser="drops what it cannot read")

MISTAKES: dict[str, Mistake] = {
    "arguments-as-a-list": DROPS,
    "backslashes-in-code": Mistake("outcomes", parser="strict"),
    "bad-arguments": with_tool("outcomes", reported.SendsAnything),
    "blocked-by-a-full-pipe": with_tool("partial_output_kept", reported.NoStdoutHere),
    "blocked-rollouts": with_settings("outcomes", rate_limit=128),
    "bound-to-loopback": with_settings("attempts_per_call", max_attempts=12),
    "braces-in-the-code": Mistake("outcomes", parser="flat braces"),
    "broken-calls": Mistake("rollout_ends", parser="drops what it cannot read"),
    "broken-memory-limit": with_tool("outcomes", reported.TrustsStatus),
    "bytes-that-are-not-text": with_tool("outcomes", reported.TrustsStatus),
    "call-lost-in-thinking": DROPS,
    "call-on-one-line": Mistake("outcomes", parser="needs line breaks"),
    "call-without-a-name": DROPS,
    "cancelled-while-queued": Mistake(
        "in_flight_within_limit", core=reported.CountsCancelledAsReturned
    ),
    "coloured-tracebacks": with_tool("rollout_ends", reported.Simple),
    "context-overflow-by-a-tool": NO_LIMITS,
    "dead-server-read-as-failing-code": with_tool(
        "no_gradient_from_lost_samples", reported.BlamesTheCode
    ),
    "death-at-the-last-call": with_tool("infra_never_scored", reported.ScoresZero),
    "degradation-ladder": with_tool("infra_never_scored", reported.ScoresZero),
    "doubled-payload": Mistake("no_duplicate_execution", parser="whatever looks like one"),
    "draft-in-thinking": Mistake("no_duplicate_execution", parser="whatever looks like one"),
    "endless-invalid-calls": Mistake("rollout_ends", parser="drops what it cannot read"),
    "executed-then-504": with_settings("no_duplicate_execution", retry_may_have_run=True),
    "executed-then-504-retried": NO_RETRY,
    "failed-to-place": with_tool("attempts_per_call", reported.Stubborn),
    "failing-loop": NO_LIMITS,
    "fan-in-beyond-concurrency": Mistake(
        "no_starvation", core=reported.Clogged, keys={"horizon": "60s"}
    ),
    "fenced-instead-of-tagged": DROPS,
    "first-worker-leaves": Mistake(
        "no_starvation", core=reported.DiesWithItsOwner, keys={"horizon": "60s"}
    ),
    "five-a-second": with_tool("retry_after_honoured", reported.Stubborn),
    "flaky-connections": NO_RETRY,
    "gateway-504-then-fine": NO_RETRY,
    "hang-at-the-end": with_tool("deadline_honoured", reported.Patient, horizon="120s"),
    "hidden-ten-seconds": with_settings("outcomes", default_timeout=10),
    "hidden-default-timeout": with_settings("deadline_honoured", max_timeout=900),
    "html-instead-of-json": with_tool("text_is_truthful", reported.ShowsAnything),
    "invented-tool-reply": Mistake("outcomes", parser="believes invented replies"),
    "kept-secrets": with_tool("no_secret_leaked", reported.TalksOfHeaders),
    "killed-with-137": with_tool("text_is_truthful", reported.OnlyStdout),
    "large-output": with_tool("cuts_marked", reported.Clips),
    "limiter-dies-in-mid-flight": Mistake(
        "in_flight_within_limit", core=reported.ForgetsEverything
    ),
    "limiter-switched-off": with_tool("outcomes", reported.NeedsItsLimiter),
    "list-of-calls": Mistake("outcomes", parser="first only"),
    "lost-streams": with_tool("text_is_truthful", reported.BothOrNothing),
    "many-waiters": Mistake("no_starvation", core=reported.Clogged, keys={"horizon": "90s"}),
    "masked-but-in-the-baseline": Mistake(
        "no_signal_only_through_losses", keys={"training": lambda part: {**part, "lost": "mask"}}
    ),
    "masked-rollouts": with_tool("infra_never_scored", reported.ScoresZero),
    "null-stdout": with_tool("stderr_shown", reported.BothOrNothing),
    "numpy-under-a-memory-limit": with_tool("stderr_shown", reported.OnlyStdout),
    "old-image": with_tool("outcomes", reported.SendsStdin),
    "one-after-the-other": with_tool("throughput_at_least", reported.OneAtATime),
    "one-bad-call-among-three": Mistake("outcomes", parser="all or nothing"),
    "one-hang-in-a-batch": NO_RETRY,
    "one-of-two-sandboxes-dies": NO_RETRY,
    "one-slow-sample": with_settings("deadline_honoured", default_timeout=3600),
    "one-turn-eats-the-budget": NO_LIMITS,
    "out-of-memory-program": with_tool("stderr_shown", reported.OnlyStdout),
    "outage-left-out-of-training": Mistake(
        "tool_use_kept", keys={"training": lambda part: {**part, "lost": "zero"}}
    ),
    "over-sampling": Mistake(
        "throughput_at_least", keys={"rollouts": lambda part: {**part, "enough": None}}
    ),
    "overload-right-limit": with_settings("attempts_per_call", rate_limit=128),
    "overload-too-wide": with_tool("infra_never_scored", reported.ScoresZero),
    "oversize-model": Mistake("rollout_ends", limits={"max_model_len": -2}),
    "oversize-model-over": NO_LIMITS,
    "oversize-prompt": Mistake("rollout_ends", limits={"max_prompt_len": -2}),
    "oversize-prompt-over": NO_LIMITS,
    "oversize-response": Mistake("rollout_ends", limits={"max_response_len": -2}),
    "oversize-response-over": NO_LIMITS,
    "poisoned-call": with_tool("outcomes", reported.TrustsStatus),
    "port-closed": with_settings("attempts_per_call", max_attempts=12),
    "proxy-in-between": with_tool("outcomes", reported.ShowsAnything),
    "reaped-keep-alive": NO_RETRY,
    "refused-after-an-upgrade": with_tool("attempts_per_call", reported.Stubborn),
    "quota-of-sandboxes": with_tool("retry_after_honoured", reported.Stubborn),
    "rotten-compile": with_tool("outcomes", reported.Simple),
    "scaled-out-unevenly": with_tool("throughput_at_least", reported.RoundRobin),
    "silent-truncation": with_tool("cuts_marked", reported.Clips),
    "sixty-four-threads": NO_RETRY,
    "stopped-during-a-call": with_tool("outcomes", reported.IgnoresCancellation),
    "success-without-result": with_tool("outcomes", reported.TrustsStatus),
    "swallowed-failures": with_tool("infra_never_scored", reported.ScoresZero),
    "timeout-never-raised": with_tool("deadline_honoured", reported.Patient, horizon="120s"),
    "timeout-told-as-success": with_tool("outcomes", reported.TrustsStatus),
    "tokens-that-do-not-match": Mistake("lengths_consistent", tokenized_again=True),
    "tool-text-cut-on-the-wrong-side": Mistake(
        "outcomes", limits={"tool_response_truncate_side": "right"}
    ),
    "truncated-call": DROPS,
    "two-kinds-of-timeout": with_tool("partial_output_kept", reported.NoStdoutHere),
    "two-limiters": with_tool("in_flight_within_limit", reported.Simple),
    "two-million-characters": with_tool("rollout_ends", reported.Simple),
    "two-objects-in-one-tag": Mistake("outcomes", parser="strict"),
    "unknown-name-corrupts-siblings": Mistake("outcomes", parser="all or nothing"),
    "unknown-tool": DROPS,
    "wedged-for-good": with_tool("infra_never_scored", reported.ScoresZero),
    "worker-death": Mistake("no_permit_leaked", core=reported.NeverExpires),
    "wrong-parser": Mistake("rollout_ends", parser="drops what it cannot read"),
    "wrong-path": with_tool("attempts_per_call", reported.Stubborn),
}


def test_everything_that_an_incident_declares_must_happen() -> None:
    """A run in which it does not happen fails, and tests/proof/test_proof.py runs them all with our
    stack."""
    for name, file in FILES.items():
        for cell in read_scenarios(file):
            parts = [
                *cell.events,
                *cell.sandbox.faults,
                *(cell.rollouts.faults if cell.rollouts else ()),
            ]
            assert [part for part in parts if part.may_not_strike] == [], name


@pytest.mark.parametrize("name", ["one-of-two-sandboxes-dies", "scaled-out-unevenly"])
def test_the_rules_of_each_sandbox_strike_there(name: str) -> None:
    for cell in read_scenarios(FILES[name]):
        struck = {
            (event["sandbox"], event["rule"])
            for event in sim.run(cell).events
            if event["event"] == "strike"
        }
        rules = {
            (sandbox, rule.name)
            for number, sandbox in enumerate(cell.sandbox.names, 1)
            for rule in cell.sandbox.instance(number).faults
        }
        assert rules == struck


@pytest.mark.parametrize("name", FILES)
def test_the_reported_mistake_breaks_the_promise_that_names_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, cell = MISTAKES[name], read_scenarios(FILES[name])[0]
    assert mistake.promise != "every_call_ends_once"
    found = play_with(cell, mistake, monkeypatch)[mistake.promise]
    assert found.state == "broken", found.sentence


def play_with(
    cell: Scenario, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Verdict]:
    keys = {
        key: new(cell.written[key]) if callable(new) else new
        for key, new in (mistake.keys or {}).items()
    }
    if mistake.tool is not None:
        several = (
            ["http://example.invalid"]
            if mistake.tool is reported.RoundRobin
            else "http://example.invalid"
        )
        config = {**(cell.own_config or {}), "sandbox_fusion_url": several}
        name = f"{mistake.tool.__module__}.{mistake.tool.__name__}"
        keys["tools"] = [{"class_name": name, "config": config, "tool_schema": SCHEMA}]
    if mistake.settings is not None:
        keys["tools"] = {**(cell.own_config or {}), **mistake.settings}
    if mistake.parser:
        monkeypatch.setattr(worker_rollouts, "format_parser", reported.bad_parser(mistake.parser))
    if mistake.limits is not None:
        right = sim.bounds_of(cell)
        limits = {
            name: _changed(getattr(right, name), change) for name, change in mistake.limits.items()
        }
        monkeypatch.setattr(
            sim,
            "bounds_of",
            lambda scenario: RolloutLimits(**limits) if limits else RolloutLimits(),
        )
    if mistake.tokenized_again:
        again = property(
            lambda request: (
                [1] * len("".join(str(one.content) for one in request.messages).encode())
            )
        )
        monkeypatch.setattr(AsyncRolloutRequest, "loss_mask", again)
    options = {} if mistake.core is None else {"core": mistake.core}
    journal = sim.run(cell.changed(**keys), **options)
    return {verdict.promise: verdict for verdict in check_promises(journal, cell.promises)}


def _changed(value: Any, change: Any) -> Any:
    return value + change if isinstance(change, int) else change


def test_the_page_lists_every_incident() -> None:
    page = (ROOT / "docs" / "incidents.md").read_text()
    command = "python -m tests.docs.tables docs/incidents.md"
    assert updated(page) == page, f"update it: {command}"
    assert "\n- `poisoned-call`: One call made the sandbox itself fail" in page


def test_the_library_is_large_and_every_incident_has_a_report() -> None:
    assert len(FILES) >= 45
    assert set(MISTAKES) == set(FILES)
    for name, file in FILES.items():
        cells = read_scenarios(file)
        assert cells[0].scenario == name
        assert cells[0].incident, name
        assert cells[0].expected, name
