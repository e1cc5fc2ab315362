"""A fake in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patience import PATIENCE
from tests.warm import warm


@contextmanager
def served(*options: str) -> Iterator[str]:
    """Run ``sfusion serve sandbox`` on a free port; yields its address."""
    command = [warm("sfusion"), "serve", "sandbox", "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield found[0]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=PATIENCE)
            finally:
                process.kill()


def sfusion(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm("sfusion"), *arguments],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
