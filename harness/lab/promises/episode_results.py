"""What promises find about the results of episodes: scores, answers, executions and retries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core.journal import Event
from ...core.sandbox_lives import Episode, SandboxLives, SandboxRequest

_LOST = re.compile(
    "infra|sandbox|service|system|lost|abort|cancel|unavailable|vanish|"
    "exclude|drop|skip|mask|ignore|remove",
    re.IGNORECASE,
)
"""Words of outcomes whose score does not count: a failure of the service, or a sample that is left
out. With any other outcome, or none, a number is a score; so it is with words that may be about the
program, such as crashed, died, timeout or invalid. Chosen: what the trainers of docs/trainers.md
call it, and near relatives."""
_SERVER_ERROR = 500
_REFUSALS = (429, 503)
_SLACK = 0.02
"""Seconds by which a request may come early: clocks of threads differ. Chosen."""


class EpisodeFinding(NamedTuple):
    """What is wrong: the kind of the sentence, its parameters, and the evidence."""

    kind: str
    evidence: list[Event]
    parameters: dict[str, Any]


def find_scored_losses(facts: SandboxLives) -> Iterator[EpisodeFinding | None]:
    """Find episodes that the service failed and whose score counts."""
    for episode in facts.episodes.values():
        if episode.ended is None:
            continue
        lost = _lost_step(facts, episode)
        if lost is None:
            continue
        outcome = str(episode.ended.get("outcome") or "")
        returned = episode.ended.get("end") == "returned"
        if not returned or episode.score is None or _LOST.search(outcome):
            yield None
            continue
        about = {"episode": episode.name, "step": lost, "score": episode.score}
        yield EpisodeFinding("episode_scored", [episode.started, episode.ended], about)


def _lost_step(facts: SandboxLives, episode: Episode) -> str | None:
    """Return the first step that was tried and never answered well, or the first of all if none
    was tried; None if the service failed none."""
    names = [str(step["call"]) for step in episode.steps]
    uses = list(facts.uses_of(episode.name))
    if not uses:
        return names[0]
    by_call: dict[str, list[SandboxRequest]] = {}
    for use in uses:
        by_call.setdefault(use.call, []).append(use)
    for call, requests in by_call.items():
        if not any(request.succeeded for request in requests):
            last = requests[-1]
            if call in names or last.status is None or last.status >= _SERVER_ERROR:
                return call
    return None


def find_answers_of_others(facts: SandboxLives) -> Iterator[EpisodeFinding | None]:
    """Find episodes that were given the answer of another step."""
    owners: dict[str, str] = {}
    for episode in facts.episodes.values():
        for step in episode.steps:
            if step["kind"] == "exec":
                owners[step["answer"]] = step["call"]
    for episode in facts.episodes.values():
        for step, answer in _answers_of(episode):
            other = _owner(answer, owners, step["answer"])
            if other is not None:
                about = {"step": step["call"], "other": other, "text": answer}
                yield EpisodeFinding(
                    "of_another_step", [episode.started, episode.ended or {}], about
                )
            elif step["answer"] in answer:
                yield None


def _answers_of(episode: Episode) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield commands with what the client took for their answer."""
    answers = (episode.ended or {}).get("answers") or []
    commands = [step for step in episode.steps if step["kind"] == "exec"]
    if len(answers) == len(episode.steps):
        pairs = zip(episode.steps, answers, strict=True)
    else:
        pairs = zip(commands, answers, strict=False)
    for step, answer in pairs:
        if step["kind"] == "exec" and answer:
            yield step, str(answer)


def _owner(answer: str, owners: dict[str, str], own: str) -> str | None:
    """Return the step that an answer belongs to, if that is another one."""
    if own in answer:
        return None
    for text, call in owners.items():
        if text in answer:
            return call
    return None


def find_repeated_commands(facts: SandboxLives, at_most: int) -> Iterator[EpisodeFinding | None]:
    """Find steps whose command was executed too often in one sandbox.

    A client may send a command of its own many times, to see whether the sandbox is usable.
    """
    for call, requests in facts.by_step.items():
        if not facts.is_step(call):
            continue
        started = [request for request in requests if request.started]
        if not started:
            continue
        ((instance, times),) = Counter(request.instance for request in started).most_common(1)
        if times <= at_most:
            yield None
            continue
        evidence = [request.arrived for request in started if request.instance == instance]
        yield EpisodeFinding(
            "executed_often", evidence, {"call": call, "times": times, "bound": at_most}
        )


def find_early_creates(facts: SandboxLives) -> Iterator[EpisodeFinding | None]:
    """Find creates that came again before the wait was over that their refusal asked for.

    Clients whose creates are all alike are left out: nobody can tell which one comes again.
    """
    creates = list(facts.of_kind("create"))
    if len({create.call for create in creates}) == 1 < len(facts.episodes):
        return
    refused: dict[str, SandboxRequest] = {}
    for create in creates:
        before = refused.pop(create.call, None)
        if before is not None:
            yield _early(before, create)
        if create.status in _REFUSALS and _asked(create) is not None:
            refused[create.call] = create


def _early(refused: SandboxRequest, again: SandboxRequest) -> EpisodeFinding | None:
    """Return a finding if a create came again too early."""
    assert refused.ended is not None
    early = refused.ended["at"] + (_asked(refused) or 0.0) - again.at
    if early <= _SLACK:
        return None
    about = {"call": again.call, "early": early}
    return EpisodeFinding("early", [refused.ended, again.arrived], about)


def _asked(create: SandboxRequest) -> float | None:
    """Return for how many seconds an answer asks to wait."""
    try:
        return float((create.ended or {}).get("retry_after"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
