"""Did everything that a scenario declares take effect?

A rule that never strikes tests nothing, and nobody notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from sfusion_tools.wording import counted

from ....fakes.lifecycle.model import Lifecycle
from ....fakes.sandbox.models import Queue, Quota, Unbounded
from ...core.run_events import attempt_of
from ...core.verdict import EVERYTHING_TOOK_EFFECT, How
from ..promises import RunEvents, Verdict
from ..scenarios.model import Scenario
from .idle_events import idle_events
from .idle_rules import idle_rules


def check_effect(scenario: Scenario, run: RunEvents) -> list[Verdict]:
    """Return a verdict on what a scenario declares and its run did not show; none if all of it took
    effect."""
    if run.of_world("stuck", "unobserved") or scenario.has_single_calls:
        return []  # of single calls, a client makes those that it can
    idle = [
        *idle_rules(scenario, run),
        *idle_events(scenario, run),
        *_idle_models(scenario, run),
        *_idle_cancellation(scenario, run),
    ]
    return [unknown(idle)] if idle else []


def unknown(reasons: list[str]) -> Verdict:
    """Return the verdict for these reasons."""
    return Verdict(
        EVERYTHING_TOOK_EFFECT,
        "unknown",
        "; ".join(reasons),
        count=len(reasons),
        how=How(EVERYTHING_TOOK_EFFECT, "idle", details={"reasons": reasons}),
    )


def _idle_models(scenario: Scenario, run: RunEvents) -> Iterator[str]:
    """Say which quotas and queues refused no request.

    If the tool's own limits keep it below them, that is as it should be.
    """
    if _tool_stays_below(scenario):
        return
    for name, part in zip(scenario.sandbox.names, scenario.sandbox.settings, strict=True):
        if isinstance(part.model, Quota | Queue):
            yield from _idle_model(name, part.model, run)


def _idle_model(sandbox: str, model: Quota | Queue, run: RunEvents) -> Iterator[str]:
    """Say that a model neither refused a request nor let one wait."""
    events = [event for event in run.server if event.get("sandbox", sandbox) == sandbox]
    struck = {attempt_of(event) for event in events if event["event"] == "strike"}
    for event in events:
        refused = event["event"] == "answered" and event["status"] == model.status
        if refused and attempt_of(event) not in struck:
            return
    most = max((event["in_flight"] for event in events if event["event"] == "arrived"), default=0)
    if isinstance(model, Queue) and model.waiting is None and most > model.workers:
        return  # it refuses nothing, but requests have waited
    yield f"the {model.kind} of {sandbox} was never reached: at most {most} were in flight"


def _tool_stays_below(scenario: Scenario) -> bool:
    """Does the tool limit itself to what all sandboxes together admit?"""
    models = [part.model for part in scenario.sandbox.settings]
    admitted = sum(_in_flight(model) for model in models)
    admitted_per_second = sum(getattr(model, "per_second", None) or inf for model in models)
    limit = scenario.stated_limit or inf
    per_second = scenario.setting("requests_per_second") or inf
    return limit <= admitted and per_second <= admitted_per_second


def _in_flight(model: Unbounded | Queue | Quota | Lifecycle) -> float:
    """Return how many requests a sandbox admits at a time."""
    if isinstance(model, Queue):
        return model.workers + (model.waiting or 0)
    return getattr(model, "in_flight", None) or inf


def _idle_cancellation(scenario: Scenario, run: RunEvents) -> Iterator[str]:
    load = scenario.load
    if load is None or load.cancel is None or run.of_world("cancelled"):
        return
    yield f"`load.cancel` cancelled none of {counted(len(run.made), 'call')}"
