"""A separate driver process for the workers of a run, so that it can be killed (``python -m`` this module).

Whatever a driver created goes when it goes. A run that kills its driver lets this process create the workers; the run
itself lives on to see what becomes of their permits.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
from typing import Any

import ray

READY = b"ready\n"


class SecondDriver:
    """The process, seen from the run."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._process: subprocess.Popen[bytes] | None = None

    async def create(self, places: dict[str, str], orders: Any) -> dict[str, Any]:
        """Let it create a worker for every name, on the node beside it; gives their handles."""
        if await asyncio.to_thread(self._start, pickle.dumps((places, orders))) != READY:
            raise ray.exceptions.RayError("the driver of the workers did not come up")
        return {name: ray.get_actor(name, namespace=self._namespace) for name in places}

    def _start(self, told: bytes) -> bytes:
        command = [sys.executable, "-m", __name__, self._address, self._namespace]
        self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(told)
        process.stdin.flush()
        return process.stdout.readline()

    def kill(self) -> None:
        """End it without a goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> None:
    """Create the workers that the run asks for, and live until it has gone."""
    from sfusion.harness.worlds.ray_crew import create

    address, namespace = sys.argv[1:]
    places, orders = pickle.load(sys.stdin.buffer)  # from the process that started this one, over a pipe of theirs
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)
    workers = [create(name, node, orders, named=True) for name, node in places.items()]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.buffer.read()
    del workers  # kept until now: a worker whose last handle goes ends


if __name__ == "__main__":
    main()
