"""Promises about what is sent, reported and kept, each broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.lab.promises.scenes import broken_in, scene
from tests.own_bugs import bugs

Patch = pytest.MonkeyPatch


def only(
    promise: str, put: Callable[[Patch], None], patch: Patch, says: str, **changes: object
) -> None:
    assert not broken_in(scene(**changes))
    put(patch)
    broken = broken_in(scene(**changes))
    assert set(broken) == {promise}
    assert says in broken[promise].sentence


def test_sent_as_asked(monkeypatch: Patch) -> None:
    says = "call c0001 was sent with memory_limit_MB -1, asked for was 1024 (and 23 more)"
    only("sent_as_asked", bugs.memory_field_misspelt, monkeypatch, says)


def test_sent_as_asked_with_code_and_headers(monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        only(
            "sent_as_asked",
            bugs.trailing_newline_of_the_code_stripped,
            patch,
            "with other code than it was given",
        )
    tools = {"rate_limit": 3, "headers": {"X-Token": "canary-4711"}}
    only(
        "sent_as_asked",
        bugs.headers_never_sent,
        monkeypatch,
        "without the header X-Token as configured",
        tools=tools,
    )


def test_metrics_are_true(monkeypatch: Patch) -> None:
    only(
        "metrics_are_true",
        bugs.waited_time_not_counted,
        monkeypatch,
        "for permits, reported are 0 s",
    )


def test_instances_released(monkeypatch: Patch) -> None:
    only(
        "instances_released",
        bugs.instances_leaked,
        monkeypatch,
        "keeps 12 of 12 released instances, first c0001",
    )


def test_requests_paced(monkeypatch: Patch) -> None:
    tools = {"rate_limit": 8, "requests_per_second": 10, "requests_burst": 2}
    only(
        "requests_paced",
        bugs.bucket_gives_one_too_many,
        monkeypatch,
        "before 10 per second allow it",
        tools=tools,
    )
