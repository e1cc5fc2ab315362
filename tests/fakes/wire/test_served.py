"""A fake beside synchronous code, in a thread of its own."""

from __future__ import annotations

import urllib.request

import pytest

from sfusion import FakeSandbox, FakeSGLangServer


@pytest.mark.parametrize("fake", [FakeSandbox, FakeSGLangServer])
async def test_a_with_block_inside_a_running_loop_lets_its_exception_out(
    fake: type[FakeSandbox] | type[FakeSGLangServer],
) -> None:
    def fails() -> None:
        with fake() as one, urllib.request.urlopen(f"{one.url}/__sfusion/state") as answer:
            assert answer.status == 201

    with pytest.raises(AssertionError, match="200 == 201"):
        fails()
