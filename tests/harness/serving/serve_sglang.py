"""Runs ``sfusion serve sglang`` in a process."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.warm import warm


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server and yield it with its URL; end it if the test did not."""
    with subprocess.Popen(
        [warm("sfusion"), "serve", "sglang", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            found = re.search(r"http://[0-9.:]+", first)
            assert found, first + process.stdout.read()
            yield process, found[0]
        finally:
            if process.poll() is None:
                process.kill()
