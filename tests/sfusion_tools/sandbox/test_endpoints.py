"""The addresses of sandboxes are checked at construction, and no log shows their secrets."""

from __future__ import annotations

import re

import pytest

from sfusion_tools.errors import ConfigError
from sfusion_tools.sandbox.endpoints import base_urls, is_placeholder, normalise_url, redact, route

A, B = "http://a:1", "http://b:2"


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
    assert route(base, "run_code").partition("?")[0].endswith("/run_code")
    assert "/run_code/run_code" not in route(normalise_url(url), "run_code")


def test_the_query_of_a_url_stays_after_the_path():
    assert route(normalise_url("https://h/x?key=1"), "run_code") == "https://h/x/run_code?key=1"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "  ",
        None,
        8080,
        "sandbox_url",
        "localhost:8080",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://[::1",
    ],
)
def test_what_is_not_a_url_is_refused(url):
    """GAIR-NLP/ToRL#27: with a placeholder in the config, training went on for 264 steps."""
    with pytest.raises(
        ConfigError, match="must be the address of a Sandbox Fusion server, such as http"
    ):
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
    [
        "https://user:hunter2@h:1/p?token=hunter2",
        "user:hunter2@h?x=hunter2",
        "http://u:hunter2@[::1",
        "https://h/hunter2/run_code",
        "https://h/run_code/hunter2",
        "https://h/faas/hunter2#hunter2",
        "https://h#hunter2",
        "h:80#hunter2",
        "h:80/hunter2/run_code",
        "gateway.test/hunter2/run_code",
        "http://user:80/hunter2@h/run_code",
    ],
)
def test_secrets_are_removed_from_urls(url):
    assert "hunter2" not in redact(url)


def test_a_redacted_url_keeps_host_and_routes():
    assert redact("https://u:p@h:1/run_code?t=s") == "https://h:1/run_code"
    assert redact("http://[::1]:80/run_code/run_code/") == "http://[::1]:80/run_code/run_code/"
    assert redact("volcengine/sandbox") == "volcengine/sandbox"


@pytest.mark.parametrize(
    "url", ["https://u:p@h/token/run_code?x=y", "10.0.0.1:80/token", "http://h:80/run_code", "s1"]
)
def test_a_redacted_url_stays_as_it_is(url):
    assert redact(redact(url)) == redact(url)


def test_redacted_urls_of_one_host_are_told_apart():
    one, other = redact("https://h/token-1/run_code"), redact("https://h/token-2/run_code")
    assert one != other
    assert re.fullmatch(r"https://h/\*\*\*-[0-9a-f]{4}/run_code", one)
    assert redact("https://u:p@h/token-1?x=y") == one.removesuffix("/run_code")


def test_the_same_url_twice_is_one_endpoint():
    assert base_urls([A, f"{A}/run_code", B]) == (A, B)


def test_an_empty_list_of_urls_is_refused():
    with pytest.raises(ConfigError, match="empty list"):
        base_urls([])
