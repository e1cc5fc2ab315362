"""A fake beside synchronous code, in a thread of its own."""

from __future__ import annotations

import urllib.request

import pytest

from sfusion import FakeSandbox, FakeSGLangServer
from sfusion.fakes.errors import WireError


@pytest.mark.parametrize("fake", [FakeSandbox, FakeSGLangServer])
async def test_a_with_block_inside_a_running_loop_lets_its_exception_out(
    fake: type[FakeSandbox] | type[FakeSGLangServer],
) -> None:
    def fails() -> None:
        with fake() as server, urllib.request.urlopen(f"{server.url}/__sfusion/state") as answer:
            assert answer.status == 201

    with pytest.raises(AssertionError, match="200 == 201"):
        fails()


def test_a_fake_that_is_not_running_here_says_how_to_use_it() -> None:
    fake = FakeSandbox()
    for use in (lambda: fake.set_faults([]), fake.forget, fake.metrics):
        with pytest.raises(WireError, match=r"not running here: use `with FakeSandbox\(\) as fake"):
            use()
    with fake:
        fake.set_faults([{"what": {"status": 503}}])
        assert "503" in str(fake.faults())
