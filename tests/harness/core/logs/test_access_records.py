"""Access logs of nginx and uvicorn as call records."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sfusion.harness.core.logs.access_records import access_records
from sfusion.harness.core.logs.reading import read_records

NGINX = (
    '10.0.0.7 - - [10/Oct/2025:13:55:36 -0700] "POST /run_code HTTP/1.1" {status} 2326 '
    '"-" "aiohttp/3.9"'
)
AT = datetime(2025, 10, 10, 20, 55, 36, tzinfo=UTC).timestamp()


def read(text: str, number: int = 7):
    (record,) = access_records(text.encode() + b"\n", number)
    return record


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, None),
        (429, "throttled"),
        (502, "sandbox_error"),
        (404, "bad_response"),
        (499, "cancelled"),
    ],
)
def test_a_line_of_nginx_has_time_status_and_size(status, outcome):
    record = read(NGINX.format(status=status))
    assert (record.began, record.seconds, record.source, record.outcome, record.timed) == (
        AT,
        None,
        "access",
        outcome,
        True,
    )
    (attempt,) = record.attempts
    assert (attempt.status, attempt.outcome, attempt.received) == (status, outcome, 2326)


@pytest.mark.parametrize(
    ("rest", "seconds", "sandbox"),
    [
        (" 1.250 1.248", 1.25, ""),
        (' "1.250" "10.0.0.9:8080"', 1.25, "10.0.0.9:8080"),
        (" rt=1.250 uct=0.001 urt=1.248", 1.25, ""),
        (" 10.0.0.9:8080 1.250", 1.25, "10.0.0.9:8080"),
        (" request_time: 1.250 upstream_addr=sandbox-2:8080", 1.25, "sandbox-2:8080"),
        (' "-"', None, ""),
    ],
)
def test_request_times_and_upstreams_are_found_wherever_they_are(rest, seconds, sandbox):
    record = read(NGINX.format(status=200) + rest)
    assert (record.began, record.seconds, record.attempts[0].endpoint) == (
        AT - (seconds or 0.0),
        seconds,
        sandbox,
    )


BOTH = [("10.0.0.1:80", 502, 0.01), ("[::1]:8080", 200, 1.24)]


@pytest.mark.parametrize(
    ("rest", "attempts"),
    [
        (' rt=1.250 ua="10.0.0.1:80, [::1]:8080" us="502, 200" urt="0.010, 1.240"', BOTH),
        (" 1.250 10.0.0.1:80, [::1]:8080 502, 200 0.010, 1.240", BOTH),
        (
            " request_time=1.250 upstream_addr=10.0.0.1:80, [::1]:8080 upstream_status=502, 200 "
            "upstream_response_time=0.010, 1.240",
            BOTH,
        ),
        (' rt=1.250 ua="10.0.0.1:80 : [::1]:8080" us="502 : 200" urt="0.010 : 1.240"', BOTH),
        (
            ' rt=1.250 ua="unix:/run/s.sock, sandbox-2:8080" us="504, 200" urt="-, 1.240"',
            [("unix:/run/s.sock", 504, None), ("sandbox-2:8080", 200, 1.24)],
        ),
        (
            " 1.250 10.0.0.1:80, 10.0.0.2:80",
            [("10.0.0.1:80", None, None), ("10.0.0.2:80", 200, 1.25)],
        ),
        (" 1.250 [2001:db8::1]:8080", [("[2001:db8::1]:8080", 200, 1.25)]),
        (' rt=1.250 ua="-" us="-" urt="-"', [("", 200, 1.25)]),
    ],
)
def test_each_upstream_that_nginx_tried_is_an_attempt(rest, attempts):
    record = read(NGINX.format(status=200) + rest)
    assert [(one.endpoint, one.status, one.seconds) for one in record.attempts] == attempts
    assert (record.seconds, record.outcome, record.attempts[-1].outcome) == (1.25, None, None)
    before = sum(one.seconds or 0.0 for one in record.attempts[:-1])
    assert record.attempts[-1].after == pytest.approx(before)
    for one in record.attempts[:-1]:
        assert one.outcome == ("unreachable" if one.status is None else "sandbox_error")


@pytest.mark.parametrize(
    ("before", "began"),
    [
        ("2025-10-10 20:55:36,250 ", AT + 0.25),
        ("2025-10-10T20:55:36Z stdout F ", AT),
        ("[2025-10-10 13:55:36.5 -0700] ", AT + 0.5),
        ("2025-10-10T22:55:36.000000+02:00 ", AT),
        ("", None),
    ],
)
def test_a_line_of_uvicorn_has_a_time_only_if_its_format_was_changed(before, began):
    record = read(
        f'{before}INFO:     10.0.0.7:51234 - "POST /run_code HTTP/1.1" 503 Service Unavailable'
    )
    assert record.timed is (began is not None)
    assert record.began == (7.0 if began is None else began)
    assert (record.outcome, record.attempts[0].status) == ("sandbox_error", 503)


def test_colours_are_ignored():
    record = read(
        '\x1b[32mINFO\x1b[0m:     1.2.3.4:5 - "\x1b[1mPOST /run_code HTTP/1.1\x1b[0m" '
        "\x1b[31m429 Too Many\x1b[0m"
    )
    assert record.outcome == "throttled"


@pytest.mark.parametrize(
    "line",
    [
        "INFO:     Started server process [1]",
        'INFO:     10.0.0.7:51234 - "GET /v1/ping HTTP/1.1" 200 OK',
        NGINX.format(status=200).replace("POST", "GET"),
        NGINX.format(status=200).replace("Oct", "Okt"),
        'say "hello"',
        '- "POST',
        '"' + "x:1" * 3000,
    ],
)
def test_other_lines_are_not_calls(line):
    assert not access_records(line.encode(), 7)


def test_a_file_of_mixed_lines(tmp_path):
    path = tmp_path / "access.log"
    path.write_text(
        "INFO:     Started server process [1]\n"
        '2025-10-10 20:55:36 INFO:     10.0.0.7:51234 - "POST /run_code HTTP/1.1" 200 OK\n'
        'INFO:     10.0.0.7:51234 - "GET /v1/ping HTTP/1.1" 200 OK\n'
        + NGINX.format(status=429)
        + "\n"
    )
    assert [one.attempts[0].status for one in read_records([path])] == [200, 429]
