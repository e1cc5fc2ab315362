"""URLs are checked at construction; calls are spread over the endpoints, and failing ones are set aside."""

from __future__ import annotations

from collections import Counter

import pytest

from sfusion_tools.errors import ConfigError
from sfusion_tools.sandbox.endpoints import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Endpoint,
    Endpoints,
    is_placeholder,
    normalise_url,
    redact,
)

A, B, C = "http://a:1", "http://b:2", "http://c:3"


def _one(endpoints: Endpoints, now: float, *, healthy: bool | None = True) -> str:
    """Take an endpoint and give it back at once."""
    endpoint = endpoints.take(now)
    endpoints.give(endpoint, now, began=now, healthy=healthy)
    return endpoint.url


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:8080", "http://h:8080"),
        ("http://h:8080/", "http://h:8080"),
        ("http://h:8080/run_code", "http://h:8080"),
        (" http://h:8080/run_code/ ", "http://h:8080"),
        ("https://h/faas/sandbox/", "https://h/faas/sandbox"),
        ("https://h/faas/sandbox/run_code?key=1", "https://h/faas/sandbox?key=1"),
        ("http://[::1]:8080/run_code", "http://[::1]:8080"),
    ],
)
def test_a_url_is_accepted_with_and_without_run_code(url, base):
    assert normalise_url(url) == base
    assert Endpoint(base).path("run_code").partition("?")[0].endswith("/run_code")
    assert "/run_code/run_code" not in Endpoint(normalise_url(url)).path("run_code")


def test_the_query_of_a_url_stays_after_the_path():
    assert Endpoint(normalise_url("https://h/x?key=1")).path("run_code") == "https://h/x/run_code?key=1"


@pytest.mark.parametrize(
    "url",
    ["", "  ", None, 8080, "sandbox_url", "localhost:8080", "ftp://h", "http://", "http://h:99999", "http://[::1"],
)
def test_what_is_not_a_url_is_refused(url):
    """GAIR-NLP/ToRL#27: with a placeholder in the config, training went on for 264 steps."""
    with pytest.raises(ConfigError, match="must be the address of a Sandbox Fusion server, such as http"):
        normalise_url(url)


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("https://xxx.apigateway-cn.example.net/run_code", True),
        ("https://your-sandbox/run_code", True),
        ("http://sandbox.example.com", True),
        ("http://${HOST}:8080", True),
        ("http://127.0.0.1:8080", False),
        ("http://sandbox.internal:8080", False),
    ],
)
def test_a_placeholder_is_recognised(url, is_one):
    assert is_placeholder(url) is is_one


@pytest.mark.parametrize(
    "url",
    ["https://user:hunter2@h:1/p?token=hunter2", "user:hunter2@h?x=hunter2", "http://u:hunter2@[::1"],
)
def test_secrets_are_removed_from_urls(url):
    assert "hunter2" not in redact(url)


def test_a_redacted_url_keeps_host_and_path():
    assert redact("https://u:p@h:1/p?t=s") == "https://h:1/p"
    assert redact("http://[::1]:80/x") == "http://[::1]:80/x"


def test_concurrent_calls_are_spread_evenly():
    endpoints = Endpoints([A, B, C])
    busy = [endpoints.take(0.0) for _ in range(30)]
    assert Counter(endpoint.url for endpoint in busy) == {A: 10, B: 10, C: 10}
    for endpoint in busy[:12]:
        endpoints.give(endpoint, 0.0, began=0.0, healthy=True)
    again = [endpoints.take(1.0) for _ in range(12)]
    assert Counter(endpoint.url for endpoint in again) == {A: 4, B: 4, C: 4}


def test_sequential_calls_go_round_robin():
    endpoints = Endpoints([A, B])
    assert [_one(endpoints, float(now)) for now in range(4)] == [A, B, A, B]


def test_the_same_url_twice_is_one_endpoint():
    assert [endpoint.url for endpoint in Endpoints([A, f"{A}/run_code", B])] == [A, B]


def test_a_failing_endpoint_is_set_aside_and_tried_again_later():
    endpoints = Endpoints([A, B])
    assert _one(endpoints, 0.0, healthy=False) == A
    assert {_one(endpoints, FIRST_PAUSE * 0.9) for _ in range(5)} == {B}
    assert A in {_one(endpoints, FIRST_PAUSE * 1.1) for _ in range(2)}


def test_only_one_attempt_probes_an_endpoint_that_failed():
    endpoints = Endpoints([A, B])
    _one(endpoints, 0.0, healthy=False)
    later = FIRST_PAUSE * 2
    taken = Counter(endpoints.take(later).url for _ in range(8))
    assert taken == {A: 1, B: 7}


def test_an_endpoint_that_answers_again_gets_its_full_share():
    endpoints = Endpoints([A, B])
    _one(endpoints, 0.0, healthy=False)
    later = FIRST_PAUSE * 2
    probe = next(e for e in (endpoints.take(later), endpoints.take(later)) if e.url == A)
    endpoints.give(probe, later, began=later, healthy=True)
    assert Counter(endpoints.take(later).url for _ in range(9)) == {A: 5, B: 4}


def test_each_failure_in_a_row_doubles_the_pause_up_to_the_longest():
    endpoints = Endpoints([A])
    (endpoint,) = endpoints
    now, rests = 0.0, []
    for _ in range(8):
        now = max(now, endpoint.set_aside_until) + 1.0
        _one(endpoints, now, healthy=False)
        rests.append(endpoint.set_aside_until - now)
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_crash_with_many_attempts_in_flight_counts_as_one_failure():
    endpoints = Endpoints([A])
    (endpoint,) = endpoints
    for taken in [endpoints.take(0.0) for _ in range(50)]:
        endpoints.give(taken, 5.0, began=0.0, healthy=False)
    assert (endpoint.set_aside_until, endpoint.in_flight) == (5.0 + FIRST_PAUSE, 0)


def test_when_all_are_set_aside_the_one_that_returns_first_is_tried():
    endpoints = Endpoints([A, B])
    _one(endpoints, 0.0, healthy=False)
    _one(endpoints, 0.1, healthy=False)
    assert _one(endpoints, 0.2, healthy=None) == A


def test_an_attempt_of_unknown_health_leaves_the_endpoint_unchanged():
    endpoints = Endpoints([A])
    (endpoint,) = endpoints
    _one(endpoints, 0.0, healthy=None)
    assert (endpoint.failures, endpoint.in_flight) == (0, 0)


def test_an_empty_list_of_urls_is_refused():
    with pytest.raises(ConfigError, match="empty list"):
        Endpoints([])
