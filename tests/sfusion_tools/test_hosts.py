"""Which hosts mean this machine, for listening and as a destination."""

from __future__ import annotations

import pytest

from sfusion_tools.hosts import is_loopback, is_this_machine


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("127.9.9.9", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:0.0.0.0", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("notlocalhost", False),
        ("", False),
    ],
)
def test_is_loopback_is_true_only_for_loopback_addresses(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "::ffff:0.0.0.0"])
def test_an_unspecified_address_is_this_machine_as_a_destination(host: str) -> None:
    assert is_this_machine(host)
    assert not is_this_machine("10.0.0.1")
