"""Fault rules of a scenario that never struck, or changed nothing, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from sfusion_tools.wording import counted

from ....fakes.faults import FaultPlan, Output, Rule
from ...core.events import AnyEvent
from ..programs import truth_of
from ..promises import CallEvents, RunEvents
from ..scenarios.model import Scenario
from ..scenarios.parts import InstancePart
from .idle_events import end_of_load


def idle_rules(scenario: Scenario, run: RunEvents) -> Iterator[str]:
    """Say which rules had no effect, unless they may do that."""
    sandbox = scenario.sandbox
    own_part = InstancePart()
    shared = [name for name in sandbox.names if sandbox.each.get(name, own_part).faults is None]
    yield from _idle_at(shared, sandbox.faults, scenario, run)
    for name, part in sandbox.each.items():
        yield from _idle_at([name], part.faults or [], scenario, run)
    if scenario.rollouts is not None:
        yield from _idle_in_engine(scenario.rollouts.faults, run)


def _idle_at(
    sandboxes: list[str], faults: Iterable[Rule], scenario: Scenario, run: RunEvents
) -> Iterator[str]:
    """Say which rules of some sandboxes had no effect."""
    first = scenario.sandbox.names[0]
    events = [event for event in run.server if event.get("sandbox", first) in sandboxes]
    for rule in FaultPlan(faults).rules:
        if rule.may_not_strike:
            continue
        strikes = [event for event in events if _is_strike(event, rule)]
        if strikes:
            harmless = _why_harmless(rule, strikes, run)
            if harmless is not None:
                yield f"rule `{rule.name}` changed nothing: {harmless}"
        elif sandboxes:
            yield f"rule `{rule.name}` never struck: {_why_idle(rule, events, run)}"
        else:
            yield f"rule `{rule.name}` never struck: each sandbox has `faults` of its own"


def _is_strike(event: AnyEvent, rule: Rule) -> bool:
    return event["event"] == "strike" and bool(event["rule"] == rule.name)


def _idle_in_engine(faults: Iterable[Rule], run: RunEvents) -> Iterator[str]:
    """Say which rules of the engine never struck."""
    struck = {event["rule"] for event in run.engine if event["event"] == "strike"}
    turns = sum(event["event"] == "spoke" for event in run.engine)
    for rule in FaultPlan(faults).rules:
        if rule.name not in struck and not rule.may_not_strike:
            yield (
                f"rule `{rule.name}` of the engine never struck: none of {counted(turns, 'turn')} "
                "met its conditions"
            )


_STREAMS = {"stdout": "to stdout", "stderr": "to stderr", "both": "anything"}


def _why_harmless(rule: Rule, strikes: Sequence[AnyEvent], run: RunEvents) -> str | None:
    """Say why a rule that struck had no effect; None if it had one."""
    if all(action.lasts == 0 for action in rule.what):
        return f"its {rule.what[0].kind} lasts 0 s"
    if not all(isinstance(action, Output) and action.what in _LOSES for action in rule.what):
        return None
    for strike in strikes:
        wrote = _wrote(run.calls.get(strike["call"]), strike["stream"])
        if wrote is None or wrote > strike.get("size", 0):
            return None
    stream = _STREAMS[strikes[0]["stream"]]
    return f"no program that it struck wrote {stream}, or not more than it keeps"


_LOSES = ("lost", "cut")
"""Faults of the output that change nothing if there is no output, or only a little."""


def _wrote(call: CallEvents | None, stream: str) -> int | None:
    """Return how many characters the program of a call wrote to a stream; None: not known."""
    truth = None if call is None else truth_of(call.intent, call.call)
    if truth is None:
        return None
    match stream:
        case "stdout":
            return len(truth.stdout)
        case "stderr":
            return len(truth.stderr)
        case _:
            return max(len(truth.stdout), len(truth.stderr))


def _why_idle(rule: Rule, events: Sequence[AnyEvent], run: RunEvents) -> str:
    """Say which condition kept a rule from striking, with what there was instead."""
    if "connect" in rule.actions_by_phase:
        return "no connection met its conditions"
    arrived = [event for event in events if event["event"] == "arrived"]
    if not arrived:
        return "no request reached the sandbox"

    if rule.call is not None:
        ids = sorted({event["call"] for event in arrived})
        arrived = [event for event in arrived if _fits(event["call"], rule.call)]
        if not arrived:
            return f"no call matches {_listed(rule.call)}, ids are {ids[0]}…{ids[-1]}"
    if rule.path is not None and not any(_fits(event["path"], rule.path) for event in arrived):
        return f"no request had the path {_listed(rule.path)}"
    if rule.between is not None:
        since, until = rule.between
        arrived = [event for event in arrived if since <= event["at"] < until]
        if not arrived:
            end = end_of_load(run)
            return (
                f"no request came between {since:g} s and {until:g} s, "
                f"the load ended at {end:.3g} s"
            )
    return _why_none_of(arrived, rule)


def _why_none_of(arrived: Sequence[AnyEvent], rule: Rule) -> str:
    """Say why none of these requests was struck: they have the call, the path and the time."""
    if rule.above_in_flight is not None:
        most = max(event["in_flight"] for event in arrived)
        if most <= rule.above_in_flight:
            return f"at most {most} were in flight, `above_in_flight` is {rule.above_in_flight}"
    for condition in ("language", "code", "method"):
        wanted = getattr(rule, condition)
        if wanted is not None:
            shown = wanted if isinstance(wanted, str) else wanted[0]
            return f"no request met its condition `{condition}: {shown}`"
    return _why_not_counted(len(arrived), rule)


def _why_not_counted(fitting: int, rule: Rule) -> str:
    """Say why a rule that counts or draws its requests took none of those that fit."""
    requests = counted(fitting, "request")
    if rule.after is not None and fitting <= rule.after:
        return f"only {requests} met its conditions, `after` is {rule.after}"
    if rule.every is not None and fitting - (rule.after or 0) < rule.every:
        return f"only {requests} met its conditions, `every` is {rule.every}"
    if rule.probability is not None:
        return f"none of {requests} was drawn with probability {rule.probability:g}"
    phase = next(iter(rule.actions_by_phase))
    return f"no request that met its conditions reached phase `{phase}` unharmed"


def _fits(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
