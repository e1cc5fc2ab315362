"""What benchmarks share while they run: their sizes, servers in processes of their own, and a Ray
cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from sfusion.harness.errors import MissingWorld


class Ground:
    """Starts servers and Ray when a benchmark first needs them, and ends them with the context."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._stack = ExitStack()
        self._servers: dict[tuple[str, ...], tuple[subprocess.Popen[str], int]] = {}
        self._no_ray: str | None = None
        self._asked_for_ray = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def size(self, full: int, at_least: int = 1) -> int:
        """The number to use in place of the one of a full run."""
        return max(at_least, round(full * self._scale))

    def port(self, kind: str, *arguments: str) -> int:
        """The port of a server of ``benchmarks.servers``."""
        if (kind, *arguments) not in self._servers:
            self.restart(kind, *arguments)
        return self._servers[kind, *arguments][1]

    def restart(self, kind: str, *arguments: str) -> int:
        """Start this server in a new process, in place of the one that there may be; return its
        port."""
        key = (kind, *arguments)
        if key in self._servers:
            _end(self._servers.pop(key)[0])
        command = [sys.executable, "-m", "benchmarks.servers", *key]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._stack.callback(_end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise MissingWorld(f"the server {kind!r} of the benchmark did not start")
        self._servers[key] = process, int(line)
        return int(line)

    def process(self, kind: str, *arguments: str) -> int:
        """Return the process id of a server that was started."""
        return self._servers[kind, *arguments][0].pid

    def url(self, kind: str, *arguments: str) -> str:
        return f"http://127.0.0.1:{self.port(kind, *arguments)}"

    def no_ray(self) -> str | None:
        """Start Ray; return why it cannot be used, or None if it can."""
        if not self._asked_for_ray:
            self._asked_for_ray = True
            self._no_ray = self._start_ray()
        return self._no_ray

    def _start_ray(self) -> str | None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            return "Ray is not installed"
        if not ray.is_initialized():
            ray.init(
                "local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                num_cpus=2,
            )
            self._stack.callback(ray.shutdown)
        return None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
