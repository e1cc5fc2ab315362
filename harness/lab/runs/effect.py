"""Did everything that a scenario declares take effect? A rule that never strikes tests nothing, and
nobody notices."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from math import inf

from sfusion_tools.wording import counted

from ....fakes.faults import FaultPlan, Output, Rule
from ....fakes.sandbox.models import Queue, Quota
from ...core.journal import Event
from ...core.story import attempt_of
from ...core.verdict import EVERYTHING_TOOK_EFFECT, How
from ..programs import truth_of
from ..promises import CallStory, Story, Verdict
from ..scenarios.events import EventPart
from ..scenarios.model import Scenario
from ..scenarios.parts import InstancePart


def judge_effect(scenario: Scenario, story: Story) -> list[Verdict]:
    """Return a verdict on what a scenario declares and its run did not show; none if all of it took
    effect."""
    if story.of_world("stuck", "unobserved") or scenario.has_single_calls:
        return []  # of single calls, a client makes those that it can
    idle = [
        *_idle_rules(scenario, story),
        *_idle_events(scenario, story),
        *_idle_models(scenario, story),
    ]
    if (
        scenario.load is not None
        and scenario.load.cancel is not None
        and not story.of_world("cancelled")
    ):
        idle.append(f"`load.cancel` cancelled none of {counted(len(story.made), 'call')}")
    return [unknown(idle)] if idle else []


def unknown(reasons: list[str]) -> Verdict:
    """Return the verdict for these reasons."""
    how = How(EVERYTHING_TOOK_EFFECT, "idle", details={"reasons": reasons})
    return Verdict(
        EVERYTHING_TOOK_EFFECT, "unknown", "; ".join(reasons), count=len(reasons), how=how
    )


def _idle_rules(scenario: Scenario, story: Story) -> Iterable[str]:
    part = scenario.sandbox
    shared = [name for name in part.names if part.each.get(name, InstancePart()).faults is None]
    for names, faults in [
        (shared, part.faults),
        *(([name], one.faults or []) for name, one in part.each.items()),
    ]:
        mine = [event for event in story.server if event.get("sandbox", part.names[0]) in names]
        for rule in FaultPlan(faults).rules:
            strikes = [
                event for event in mine if event["event"] == "strike" and event["rule"] == rule.name
            ]
            if (
                strikes
                and (harmless := _why_harmless(rule, strikes, story))
                and not rule.may_not_strike
            ):
                yield f"rule `{rule.name}` changed nothing: {harmless}"
            elif not strikes and not rule.may_not_strike:
                why = (
                    _why_idle(rule, mine, story)
                    if names
                    else "each sandbox has `faults` of its own"
                )
                yield f"rule `{rule.name}` never struck: {why}"
    struck = {event["rule"] for event in story.engine if event["event"] == "strike"}
    for rule in FaultPlan(scenario.rollouts.faults if scenario.rollouts is not None else ()).rules:
        if rule.name not in struck and not rule.may_not_strike:
            turns = counted(sum(event["event"] == "spoke" for event in story.engine), "turn")
            yield (
                f"rule `{rule.name}` of the engine never struck: none of {turns} met its conditions"
            )


def _why_harmless(rule: Rule, strikes: list[Event], story: Story) -> str | None:
    """Say why a rule that struck had no effect; None if it had one."""
    if all(action.lasts == 0 for action in rule.what):
        return f"its {rule.what[0].kind} lasts 0 s"
    if all(isinstance(action, Output) and action.what in ("lost", "cut") for action in rule.what):
        wrote = (_wrote(story.calls.get(strike["call"]), strike) for strike in strikes)
        if not any(
            one is None or one > strike.get("size", 0)
            for one, strike in zip(wrote, strikes, strict=True)
        ):
            return (
                f"no program that it struck wrote {_TO[strikes[0]['stream']]}, or not "
                "more than it keeps"
            )
    return None


_TO = {"stdout": "to stdout", "stderr": "to stderr", "both": "anything"}


def _wrote(call: CallStory | None, strike: Event) -> int | None:
    """Return how many characters the program of a call wrote to the stream that a fault changed;
    None: not known."""
    truth = None if call is None else truth_of(call.intent, call.call)
    if truth is None:
        return None
    streams = {"stdout": truth.stdout, "stderr": truth.stderr}
    return max(len(text) for name, text in streams.items() if strike["stream"] in (name, "both"))


def _idle_models(scenario: Scenario, story: Story) -> Iterable[str]:
    """Say which quotas and queues refused nobody, unless the tool's own limits are to keep it below
    them."""
    if _keeps_below(scenario):
        return
    for name, part in zip(scenario.sandbox.names, scenario.sandbox.settings, strict=True):
        model = part.model
        if not isinstance(model, Quota | Queue):
            continue
        mine = [event for event in story.server if event.get("sandbox", name) == name]
        struck = {attempt_of(event) for event in mine if event["event"] == "strike"}
        answers = [
            one for one in mine if one["event"] == "answered" and attempt_of(one) not in struck
        ]
        most = max((event["in_flight"] for event in mine if event["event"] == "arrived"), default=0)
        waits = isinstance(model, Queue) and model.waiting is None and most > model.workers
        if not waits and not any(one["status"] == model.status for one in answers):
            yield f"the {model.kind} of {name} was never reached: at most {most} were in flight"


def _keeps_below(scenario: Scenario) -> bool:
    """Does the tool limit itself to what all sandboxes together admit?"""
    models = [part.model for part in scenario.sandbox.settings]
    room = sum(
        one.workers + (one.waiting or 0)
        if isinstance(one, Queue)
        else getattr(one, "in_flight", None) or inf
        for one in models
    )
    pace = sum(getattr(one, "per_second", None) or inf for one in models)
    return (scenario.stated_limit or inf) <= room and (
        scenario.setting("requests_per_second") or inf
    ) <= pace


def _why_idle(rule: Rule, mine: list[Event], story: Story) -> str:
    """Say which condition kept a rule from striking, with what there was instead."""
    if "connect" in rule.actions_by_phase:
        return "no connection met its conditions"
    arrived = [event for event in mine if event["event"] == "arrived"]
    if not arrived:
        return "no request reached the sandbox"
    if rule.call is not None:
        calls = sorted({event["call"] for event in arrived})
        arrived = [
            event for event in arrived if any(fnmatchcase(event["call"], one) for one in rule.call)
        ]
        if not arrived:
            return f"no call matches {_listed(rule.call)}, ids are {calls[0]}…{calls[-1]}"
    if rule.path is not None and not any(
        fnmatchcase(one["path"], path) for one in arrived for path in rule.path
    ):
        return f"no request had the path {_listed(rule.path)}"
    if rule.between is not None:
        since, until = rule.between
        arrived = [event for event in arrived if since <= event["at"] < until]
        if not arrived:
            return (
                f"no request came between {since:g} s and {until:g} s, the load ended "
                f"at {_end(story):.3g} s"
            )
    if rule.above_in_flight is not None:
        most = max(event["in_flight"] for event in arrived)
        if most <= rule.above_in_flight:
            return f"at most {most} were in flight, `above_in_flight` is {rule.above_in_flight}"
    for condition in ("language", "code", "method"):
        if (wanted := getattr(rule, condition)) is not None:
            return (
                f"no request met its condition `{condition}: "
                f"{wanted if isinstance(wanted, str) else wanted[0]}`"
            )
    requests = counted(len(arrived), "request")
    if rule.after is not None and len(arrived) <= rule.after:
        return f"only {requests} met its conditions, `after` is {rule.after}"
    if rule.every is not None and len(arrived) - (rule.after or 0) < rule.every:
        return f"only {requests} met its conditions, `every` is {rule.every}"
    if rule.probability is not None:
        return f"none of {requests} was drawn with probability {rule.probability:g}"
    return (
        "no request that met its conditions reached phase "
        f"`{next(iter(rule.actions_by_phase))}` unharmed"
    )


def _idle_events(scenario: Scenario, story: Story) -> Iterable[str]:
    scale = story.began.get("time_scale", 1.0)
    first = min(
        (
            one["at"]
            for one in story.journal.events
            if one["event"] in ("arrived", "attempt_started")
        ),
        default=0.0,
    )
    seen: set[int] = set()
    for event in sorted(scenario.events, key=lambda one: one.at):
        at = event.at * scale
        traces = (
            one for one in story.journal.events if one["at"] >= at - 1e-6 and id(one) not in seen
        )
        found = next((one for one in traces if _shows(event, one, scenario)), None)
        if found is not None:
            seen.add(id(found))
            if (
                event.seconds == 0
                and event.kind in ("pause", "cut_off", "wedge")
                and not event.may_not_strike
            ):
                yield f"event `{event.kind}: {event.target}` changed nothing: it lasts 0 s"
            elif found["at"] + _lasts(event, scenario) * scale < first and not event.may_not_strike:
                early = f"was over before the first request, which came at {first:.3g} s"
                yield f"event `{event.kind}: {event.target}` {early}"
        elif not event.may_not_strike and not (
            story.foreign and (event.kind == "resize" or event.target == "limiter")
        ):
            yield f"event `{event.kind}: {event.target}` {_why_never(event, story, at)}"


def _why_never(event: EventPart, story: Story, at: float) -> str:
    if (point := event.after) is not None:
        count = 0
        for one in story.journal.events:
            count = point.count(count, one)
        why = (
            f"the count reached only {count}"
            if count < point.number
            else "its target was gone, or the load ended"
        )
        return f"after {point} never happened: {why}"
    end = _end(story)
    why = f"the load ended at {end:.3g} s" if at >= end else "its target was gone"
    return f"at {event.at:g} s never happened: {why}"


def _lasts(event: EventPart, scenario: Scenario) -> float:
    """Return for how many seconds an event disturbs the run; infinity if nothing ends it."""
    if event.seconds is not None or event.kind not in ("crash", "kill", "wedge"):
        return inf if event.seconds is None else event.seconds
    ends = (
        one.at for one in scenario.events if one.kind == "restart" and one.target == event.target
    )
    return min((at - event.at for at in ends if at >= event.at), default=inf)


_LEAVES = {"kill": "died", "pause": "paused", "restart": "started"}
"""What the journal says about a limiter or a worker after an event."""


def _shows(event: EventPart, trace: Event, scenario: Scenario) -> bool:
    """Is this what the event leaves in the journal?"""
    name, source, target = str(trace["event"]), str(trace["source"]), str(event.target)
    mine = trace.get("worker") in event.workers(scenario.cluster.workers)
    here = target == "sandbox" or trace.get("sandbox", "sandbox-1") == target
    if target == "limiter":
        return name == f"limiter_{_LEAVES[event.kind]}"
    match event.kind:
        case "kill" | "pause":
            return name == f"worker_{_LEAVES[event.kind]}" and (mine or target == "driver")
        case "cut_off":
            return name == "cut_off" and mine
        case "restart":
            return name in ("restart", "container_started")
        case "crash" | "wedge":
            return name == event.kind and here and source == "server"
        case "resize":
            return name == "resized" and bool(trace["rate_limit"] == event.target)
        case _:
            return name == "cancelled" and source == "world"


def _end(story: Story) -> float:
    """Return when the load had ended."""
    ends = (call.endings[-1]["at"] for call in story.made if call.endings)
    return max(
        [*ends, *(event["at"] for event in story.of_world("rollout_ended", "broken_off"))],
        default=0.0,
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
