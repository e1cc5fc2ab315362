"""Reads promises from scenario files and checks them against runs."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from pydantic import ValidationError

from sfusion_tools.errors import near, refusal
from sfusion_tools.rollout.states import EndCause

from ...core.journal import Journal
from ...core.run_events import CallEvents, RunEvents
from ...core.verdict import Verdict
from ..single_calls.suite import SuiteFacts, has_single_calls
from .base import PROMISES, Promise
from .episodes import lives_of

# Importing a module registers its promises.
for _module in iter_modules([str(Path(__file__).parent)]):
    import_module(f"{__package__}.{_module.name}")


_IMPLIED = tuple(
    cls.model_construct()
    for cls in PROMISES.values()
    if cls.implied and not any(field.is_required() for field in cls.model_fields.values())
)
"""Promises that hold in every run, whatever it is about."""


def read_promise(value: Any) -> Promise:
    """Read a promise as scenarios write it: a name, or a mapping of one name to its parameters."""
    if isinstance(value, Promise):
        return value
    if isinstance(value, str):
        name = value
        given = None
    elif isinstance(value, dict) and len(value) == 1:
        ((name, given),) = value.items()
    else:
        raise ValueError(
            f"a promise is a name, or one name with its parameters, as in {{outcomes: "
            f"{{ok: all}}}}; found {value!r}"
        )
    if name not in PROMISES:
        raise ValueError(f"unknown promise {name!r}; {near(str(name), PROMISES)}")
    cls = PROMISES[name]
    if given is None:
        given = {}
    if not isinstance(given, dict):
        given = cls.from_scalar(given)
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        refusals = [refusal(found, cls.model_fields) for found in error.errors()]
        raise ValueError(f"{name}: " + "; ".join(refusals)) from None


def check_promises(journal: Journal, promises: Iterable[Promise]) -> list[Verdict]:
    """Return the verdicts on a run, in the order of the promises; then those on implied ones, if
    they are broken."""
    return check_run(RunEvents(journal), promises)[0]


def check_run(run: RunEvents, promises: Iterable[Promise]) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts on a journal that has been read, and those on implied promises that are
    not broken."""
    if has_single_calls(run.journal):
        return check_single_calls(SuiteFacts([run.journal]), promises)
    if "episodes" in run.began:
        return _check_episodes(run, promises)
    asked = list(promises) or [read_promise("every_call_ends_once")]
    named = [_checked(promise, run) for promise in asked]
    names = {verdict.promise for verdict in named}
    others = [promise for promise in _IMPLIED if promise.name not in names]
    implied = [_checked(promise, run) for promise in others if _applies(promise, run)]
    is_broken = any(verdict.state == "broken" for verdict in (*named, *implied))
    if run.of_world("broken_off") and not is_broken:
        facts = _facts_of_broken_off(run)
        named = [_broken_off(verdict, facts) for verdict in named]
        implied = [_broken_off(verdict, facts) for verdict in implied]
    broken, rest = _broken_and_others(implied)
    return [*named, *broken], rest


def _facts_of_broken_off(run: RunEvents) -> dict[str, Any]:
    """Return how far a run came that was broken off."""
    made = len(run.made)
    after = run.of_world("broken_off")[0]["after"]
    return {"after": after, "made": made, "planned": run.began.get("calls") or made}


def _broken_and_others(verdicts: Iterable[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    broken: list[Verdict] = []
    others: list[Verdict] = []
    for verdict in verdicts:
        if verdict.state == "broken":
            broken.append(verdict)
        else:
            others.append(verdict)
    return broken, others


def _check_episodes(
    run: RunEvents, promises: Iterable[Promise]
) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts on episodes, and those on implied promises that are not broken."""
    named = [_checked_episodes(promise, run) for promise in promises]
    names = {verdict.promise for verdict in named}
    implied = [
        _checked_episodes(promise, run)
        for promise in OF_EPISODES
        if promise.name not in names and promise.implied
    ]
    broken, others = _broken_and_others(implied)
    if not named:  # what is shown counts, what is not does not
        broken += [verdict for verdict in others if verdict.held]
    return [*named, *broken], others


def _checked_episodes(promise: Promise, run: RunEvents) -> Verdict:
    if not promise.judges_episodes:
        return promise.not_applicable("not_of_episodes")
    facts = lives_of(run)
    verdict = promise.check_episodes(facts)
    if verdict.state == "broken":
        return verdict
    stuck = run.of_world("stuck")
    if stuck:
        return promise.unknown("stuck", why=stuck[0]["text"])
    if not facts.requests:
        return promise.unknown("no_create")
    off = run.of_world("broken_off")
    if off:
        made = sum(episode.ended is not None for episode in facts.episodes.values())
        planned = run.began.get("episodes")
        return promise.unknown("broken_off", after=off[0]["after"], made=made, planned=planned)
    return verdict


_EVERY = tuple(cls.model_construct() for cls in PROMISES.values())
"""All of them, also those whose parameters a scenario must give."""
OF_EPISODES = tuple(promise for promise in _EVERY if promise.judges_episodes)
"""The promises that episodes are judged by."""
OF_SINGLE_CALLS = tuple(promise for promise in _EVERY if promise.unseen)
"""The promises that single calls are judged by."""


def check_single_calls(
    facts: SuiteFacts, promises: Iterable[Promise] = ()
) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts on single calls, of one run or of several, and those on implied promises
    that are not broken."""
    promises = list(promises)
    named: list[Verdict] = []
    for promise in promises:
        named += promise.check_calls(facts)
    names = {promise.name for promise in promises}
    implied: list[Verdict] = []
    for promise in OF_SINGLE_CALLS:
        if promise.name not in names:
            implied += promise.check_calls(facts)
    broken, others = _broken_and_others(implied)
    if not promises:  # what is shown counts, what is not does not
        shown = [verdict for verdict in others if verdict.held]
        if not shown and not broken:  # nothing is shown: the first says why
            shown = [verdict for verdict in others if verdict.state == "unknown"][:1]
        broken += shown
    return [*named, *broken], others


def _broken_off(verdict: Verdict, facts: dict[str, Any]) -> Verdict:
    """Return unknown for what was held until the horizon."""
    if not verdict.held:
        return verdict
    return PROMISES[verdict.promise].model_construct().unknown("broken_off", **facts)


def _applies(promise: Promise, run: RunEvents) -> bool:
    if promise.only_single_calls:
        return False
    if promise.of_rollouts and not run.of_world("rollout_started"):
        return False
    return run.journal.header.get("world") == "sim" or not promise.exact


def _checked(promise: Promise, run: RunEvents) -> Verdict:
    if promise.only_single_calls:
        return promise.not_applicable("only_single_calls")
    verdict = promise.check(run)
    is_broken = verdict.state == "broken"
    stuck = run.of_world("stuck")
    if stuck:
        return verdict if is_broken else promise.unknown("stuck", why=stuck[0]["text"])
    if promise.of_permits and run.foreign:
        return promise.not_applicable("not_our_limiter")
    was_seen = promise.name == "tool_never_raises" or not run.of_world("unobserved")
    if is_broken and was_seen:
        return verdict
    if not is_broken and not verdict.held:
        return verdict
    return _shows_nothing(run, promise) or verdict


def _shows_nothing(run: RunEvents, promise: Promise) -> Verdict | None:
    """Return a verdict that says why a run says nothing about a promise; None if it does."""
    if promise.of_rollouts:
        return None if _engine_spoke(run) else promise.unknown("engine_silent")
    if not run.made:
        return promise.unknown("no_call")
    calls = len(run.made)
    if not any(_was_handled(call, run) for call in run.made):
        return _nothing_handled(run, promise)
    if promise.needs == "result" and not any(call.succeeded for call in run.made):
        return promise.unknown("no_result", calls=calls)
    return None


def _engine_spoke(run: RunEvents) -> bool:
    """Did the engine generate anything, or refuse a prompt, which is an answer too?"""
    causes = {event["ended_by"] for event in run.of_world("rollout_ended")}
    if EndCause.PROMPT_TOO_LONG in causes:
        return True
    return any(event["event"] == "spoke" for event in run.engine)


def _nothing_handled(run: RunEvents, promise: Promise) -> Verdict:
    """Say why no call of a run shows anything."""
    calls = len(run.made)
    raised = [call for call in run.made if call.returned and call.returned.get("raised")]
    if raised:
        return promise.unknown("all_raised", raised=len(raised), calls=calls)
    if run.of_world("unobserved"):
        return promise.unknown("unobserved", calls=calls)
    return promise.unknown("none_ended", calls=calls)


def _was_handled(call: CallEvents, run: RunEvents) -> bool:
    """Did the tool do something about the call, and did the call end because of that?"""
    returned = call.returned
    if returned is None or returned.get("raised"):
        return False
    if call.of_client("attempt_started") or call.server:
        return True
    if call.intent.get("kind") == "bad_arguments":
        return True
    # Nobody sees the connections that a tool of another class is refused.
    return run.foreign and not run.of_world("unobserved")
