"""A separate driver process for the workers of a run, so that it can be killed (``python -m`` this module).

Ray ends whatever a driver created when the driver dies. A scenario that kills its driver lets this process create the
workers, while the run itself survives and sees what becomes of their permits.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import ray

from sfusion.harness.lab.worlds.ray_cluster import inherited_path
from sfusion.harness.lab.worlds.ray_worker import WorkerSetup, create_worker

READY = b"ready\n"


@dataclass
class SecondDriver:
    """The driver process, as seen by the run."""

    address: str
    namespace: str
    _process: subprocess.Popen[bytes] | None = None

    async def create(self, places: dict[str, str], setup: WorkerSetup) -> dict[str, Any]:
        """Let the process create workers (name -> node) and return their actors."""
        if await asyncio.to_thread(self._start, pickle.dumps((places, setup))) != READY:
            raise ray.exceptions.RayError("the driver process of the workers did not start")
        return {name: ray.get_actor(name, namespace=self.namespace) for name in places}

    def _start(self, orders: bytes) -> bytes:
        command = [sys.executable, "-m", __name__, self.address, self.namespace]
        with inherited_path():
            self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orders)
        process.stdin.flush()
        return process.stdout.readline()

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> None:
    """Create the workers that the run asks for, then live until the run is gone."""
    address, namespace = sys.argv[1:]
    places, setup = pickle.load(sys.stdin.buffer)  # from our parent process, over a pipe nobody else can write to
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)
    workers = [create_worker(name, node, setup, named=True) for name, node in places.items()]
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.buffer.read()
    del workers  # kept until now: Ray ends an actor when its last handle goes


if __name__ == "__main__":
    main()
