"""When to retry depends only on the call, the attempt and what the server asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfusion_tools.sandbox.retry import RETRIED_STATUSES, RetryPolicy, may_have_run, retry_after

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
POLICY = RetryPolicy(base=0.5, cap=8.0)


def test_pauses_double_up_to_the_cap():
    for attempt, full in (
        (1, 0.5),
        (2, 1.0),
        (3, 2.0),
        (4, 4.0),
        (5, 8.0),
        (6, 8.0),
        (60, 8.0),
        (5000, 8.0),
    ):
        pauses = [POLICY.pause(f"call-{number}", attempt, None) for number in range(200)]
        assert full / 2 <= min(pauses) < full * 0.6
        assert full * 0.9 < max(pauses) <= full


def test_jitter_differs_between_calls_and_is_reproducible():
    """Calls that were refused together must not retry together; the same call always pauses the
    same."""
    assert len({POLICY.pause(f"call-{number}", 1, None) for number in range(100)}) == 100
    assert (
        POLICY.pause("call", 2, None)
        == POLICY.pause("call", 2, None)
        != POLICY.pause("call", 3, None)
    )


def test_a_pause_is_never_shorter_than_the_server_asked_for():
    for asked in (0.0, 0.5, 30.0, 3600.0):
        pauses = [POLICY.pause(f"call-{number}", 1, asked) for number in range(50)]
        assert min(pauses) >= asked
        assert len(set(pauses)) == 50  # and they still do not all retry at once


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("-3", 0.0),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("1e999", None),
    ],
)
def test_retry_after_is_read_in_seconds(value, seconds):
    assert retry_after({"Retry-After": value}, NOW.timestamp()) == seconds


def test_retry_after_is_read_as_a_date():
    later = format_datetime(NOW + timedelta(seconds=90), usegmt=True)
    assert retry_after({"Retry-After": later}, NOW.timestamp()) == 90.0
    assert retry_after({"Retry-After": later}, NOW.timestamp() + 3600) == 0.0


def test_a_date_is_relative_to_the_servers_own_clock():
    headers = {
        "Date": format_datetime(NOW - timedelta(days=1), usegmt=True),
        "Retry-After": format_datetime(NOW - timedelta(days=1) + timedelta(seconds=5), usegmt=True),
    }
    assert retry_after(headers, NOW.timestamp()) == 5.0


def test_retry_after_is_none_without_the_header():
    assert retry_after({}, NOW.timestamp()) is None


@settings(max_examples=80)
@given(st.text(max_size=40), st.text(max_size=40))
@example("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", "")
@example("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 0001 00:00:00 -2359")
@example("Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359")
def test_retry_after_never_raises(value, date):
    asked = retry_after({"Retry-After": value, "Date": date}, NOW.timestamp())
    assert asked is None or asked >= 0


def test_may_have_run_is_true_for_200_and_5xx_except_503():
    assert {status for status in range(200, 600) if may_have_run(status)} == {
        200,
        *range(500, 600),
    } - {503}
    assert {429, 500, 502, 503, 504} == RETRIED_STATUSES
