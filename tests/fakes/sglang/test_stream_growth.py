"""The streams of the fake engine read each token once, not everything before it as well."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.fakes.sglang.calls import ArrayParser
from sfusion.fakes.sglang.reasoning import PARSERS


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        (lambda: ArrayParser().stream([]), '[{"name": "a", "parameters": {"x": "'),
        (lambda: PARSERS["gpt-oss"].stream(False), "<|channel|>analysis<|message|>"),
    ],
)
def test_time_grows_with_the_length_of_a_stream(begin: Callable[[], Any], text: str) -> None:
    """16 times the text takes 16 times as long, or 256 times if it is quadratic.

    It is the processor's time of this thread, and a slow attempt out of three does not matter.
    """

    def seconds(size: int) -> float:
        stream = begin()
        start = time.thread_time()
        for char in text + "x" * size:
            stream.feed(char)
        return time.thread_time() - start

    gc.disable()
    try:
        once = min(seconds(4000) for _ in range(3))
        assert any(seconds(64_000) < 40 * once for _ in range(3))
    finally:
        gc.enable()
