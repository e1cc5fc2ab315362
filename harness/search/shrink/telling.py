"""A shrunk run as a file: readable YAML, with a comment that tells what happens."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import yaml

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises import Story, Verdict
from sfusion.harness.lab.runs.result import RunResult
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.search.shrink.failure import Failure, failure_of
from sfusion.harness.terminal import printable

_LINES = 14
"""How many events are told."""
_CALLS = 3
"""Of how many calls."""
_WIDTH = 110
_DISTURBANCES = ("killed", "worker_died", "worker_paused", "cut_off", "limiter_died", "limiter_started", "crash",
                 "restart", "wedge", "resized", "stuck", "broken_off")  # fmt: skip


def scenario_file(scenario: Scenario, comment: list[str]) -> str:
    """Return the text of a scenario file that begins with a comment."""
    head = [line for text in comment for line in ([text] if text.startswith(" ") else textwrap.wrap(text, _WIDTH))]
    data = yaml.safe_dump(scenario.written, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None)
    return "".join(f"# {line}".rstrip() + "\n" for line in head) + data


def tell(result: RunResult, failure: Failure) -> list[str]:
    """Return what happens in a failing run, in a few lines: the promise, then the events that lead there."""
    verdict = next((one for one in result.verdicts if one.state == "broken" and failure_of(one) == failure), None)
    says = verdict.sentence if verdict is not None else result.error or failure.how
    told = [f"Breaks {failure.promise}: {printable(says)}."]
    lines = [f"  {event['at']:>8.4g} s  {text}" for event, text in _events(result, verdict)]
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 2], "              ...", *lines[-_LINES // 2 :]]
    if lines:
        told += ["What happens:", *lines]
    deviations = result.journal.events[-1].get("deviations") if result.journal.events else None
    if deviations:
        steps = ", ".join(str(step) for step, _ in deviations[:5]) + (", ..." if len(deviations) > 5 else "")
        told.append(f"This needs another order than first in, first out within a moment (step {steps}).")
    return told


def _events(result: RunResult, verdict: Verdict | None) -> list[tuple[Event, str]]:
    """Return the events of the calls in the evidence, and the disturbances, each with its text."""
    story = Story(result.journal)
    said = re.findall(r"[\w.-]+", verdict.sentence) if verdict is not None else []
    shown = [*said, *(one.get("call") for one in (verdict.evidence if verdict is not None else ()))]
    calls = list(dict.fromkeys(one for one in shown if one in story.calls))[:_CALLS] or list(story.calls)[:1]
    found = []
    for event in result.journal.events:
        if event["event"] in _DISTURBANCES or event.get("call") in calls:
            text = _sentence(event, has_client=story.has_client)
            if text is not None:
                found.append((event, printable(text)))
    return found


def _sentence(event: Event, *, has_client: bool) -> str | None:
    call, where = event.get("call"), f" at {event['sandbox']}" if "sandbox" in event else ""
    match event["source"], event["event"]:
        case "world", "called":
            return f"{event['worker']} makes call {call}"
        case "world", "returned":
            what = (
                f"raises {event['raised']}" if event.get("raised") else f"returns {event.get('outcome') or ''}".rstrip()
            )
            reward = f", scored {event['reward']:g}" if event.get("reward") is not None else ""
            return f"the tool {what} for {call}{reward}: {_quoted(event)}"
        case "world", "cancelled":
            return f"the caller of {call} gives up"
        case "world", "lost":
            return f"call {call} is lost with its worker"
        case "world", "killed":
            return f"{event['target']} is killed"
        case "world", "worker_died" | "worker_paused" | "cut_off":
            return f"{event['worker']} {event['event'].removeprefix('worker_').replace('_', ' ')}"
        case "world", "limiter_died" | "limiter_started":
            return None if event.get("first") else event["event"].replace("_", " ")
        case "client", "attempt_started":
            return f"attempt {event['attempt']} of {call} is sent"
        case "client", "backing_off":
            return f"the client waits {event['seconds']:g} s before it sends {call} again"
        case "client", "permit_granted" | "permit_released":
            return f"{call}: {event['event'].replace('_', ' ')} ({event['permit']})"
        case "server", "arrived" if not has_client:
            return f"request {event['attempt']} of {call} arrives{where}"
        case "server", "strike":
            return f"rule `{event['rule']}` strikes {call or 'a connection'}: {event['kind']} ({event['phase']})"
        case "server", "answered":
            again = f", Retry-After {event['retry_after']}" if event.get("retry_after") is not None else ""
            return f"the sandbox answers {call} with status {event['status']}{again}"
        case "server", "unanswered":
            return f"{call} gets no answer{where}"
        case "server", "crash" | "restart" | "wedge":
            return f"the sandbox: {event['event']}{where}"
        case "limiter", "resized":
            return f"the limit becomes {event['rate_limit']}"
        case "world", "broken_off" | "stuck":
            return event.get("text") or f"the run is broken off after {event['after']:g} s"
    return None


def _quoted(event: dict[str, Any]) -> str:
    text = " ".join(str(event.get("text") or "").split())
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
