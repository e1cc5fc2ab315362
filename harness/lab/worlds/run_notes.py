"""Events about a run as a whole that every world notes in the same words: its settings, calls that
were never made, and that it could not go on."""

from __future__ import annotations

from typing import Any

from ...core.journal import Event, Journal
from ...errors import WorldError
from ..scenarios.model import Scenario
from .recorder import Recorder

_MESSAGES_PER_LEASE = 10
"""A link on which fewer messages fit into a lease is slow; chosen: a lease is renewed three times,
and a message may be lost."""
_TELLING = 8
"""Characters of a word that does not occur by chance. Chosen."""


def note_began(recorder: Recorder, scenario: Scenario, *, sandboxes: int, **more: Any) -> None:
    """Record the settings of the run, and watch for its secrets from now on."""
    for name, secret in scenario.secrets.items():
        recorder.keep_secret(_telling_part(secret), name)
    of_some_runs: Event = {}
    if recorder.short_secrets:
        of_some_runs["short_secrets"] = recorder.short_secrets
    of_some_runs |= more
    if scenario.own_config is None:
        of_some_runs["foreign"] = True
    recorder.note(
        "world",
        "began",
        workers=scenario.cluster.workers,
        sandboxes=sandboxes,
        limit=scenario.stated_limit,
        calls=scenario.load.count if scenario.load is not None else None,
        secrets=len(recorder.secrets),
        asks=scenario.asks,
        **_more_settings(scenario),
        **of_some_runs,
    )


def _telling_part(secret: str) -> str:
    """Return what is secret of a header such as ``Bearer TOKEN``: its last word, unless it is
    short."""
    words = secret.split()
    if words and len(words[-1]) >= _TELLING:
        return words[-1]
    return secret


def _more_settings(scenario: Scenario) -> Event:
    """Return settings that promises ask for and that not every run has."""
    settings: Event = {}
    if scenario.pace is not None:
        settings["pace"] = scenario.pace
    longest_text = scenario.setting("max_output_chars")
    if isinstance(longest_text, int):
        settings["longest_text"] = longest_text
    if any(part.model.kind == "queue" for part in scenario.sandbox.settings):
        settings["queues"] = True
    lease = scenario.setting("permit_lease")
    if isinstance(lease, int | float):
        settings["lease"] = lease
        if lease < _MESSAGES_PER_LEASE * scenario.cluster.link.delay.longest:
            settings["slow_link"] = True
    return settings


def note_never_made(recorder: Recorder, called: Event) -> None:
    """Record as lost a call that was assigned to a worker which died before making it."""
    recorder.note("world", "called", **called)
    recorder.note("world", "lost", call=called["call"], worker=called["worker"])


def note_stuck(journal: Journal, error: WorldError) -> None:
    """Record that the run could not go on."""
    journal.note(journal.last_time, "world", "stuck", text=str(error), raised=type(error).__name__)
