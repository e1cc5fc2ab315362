"""A worker of world wall that can be killed: it plays the episodes that its input names.

Its input is lines of JSON, ``{"play": task}`` and ``{"cancel": name}``; its output has a line for
each episode that ended. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from typing import Any

from ..episodes.task import EpisodeStep, EpisodeTask
from ..shapes.episode import EpisodeClient
from ..shapes.shape import shape_of
from .episode_endings import ending_of
from .episode_workers import LocalWorker


class _Output:
    """What the parent reads: a copy of stdout, which the client's own prints do not reach."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._file, flush=True)


class _Player:
    """Plays what comes in, all at once."""

    def __init__(self, worker: LocalWorker, output: _Output) -> None:
        self._worker = worker
        self._output = output
        self._under_way: dict[str, asyncio.Future[Any]] = {}

    async def run(self) -> None:
        reader = asyncio.StreamReader(limit=2**24)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        self._output.send({"ready": True})
        while line := await reader.readline():
            message = json.loads(line)
            if "play" in message:
                self._play(_task_of(message["play"]))
            else:
                self._cancel(message["cancel"])

    def _play(self, task: EpisodeTask) -> None:
        work = self._worker.play(task)
        self._under_way[task.id] = work
        work.add_done_callback(partial(self._tell, task.id))

    def _cancel(self, name: str) -> None:
        work = self._under_way.get(name)
        if work is not None:
            work.cancel()

    def _tell(self, name: str, work: asyncio.Future[Any]) -> None:
        del self._under_way[name]
        self._output.send({"episode": name, "facts": ending_of(work)})


def _task_of(data: dict[str, Any]) -> EpisodeTask:
    steps = tuple(EpisodeStep(**step) for step in data["steps"])
    return EpisodeTask(**{**data, "steps": steps})


def main() -> None:
    """Play until the input ends."""
    output = _Output()
    try:
        client = shape_of(sys.argv[1]).make()
        assert isinstance(client, EpisodeClient), f"{sys.argv[1]} plays no episodes"
    except Exception as error:
        output.send({"failed": f"{type(error).__name__}: {error}"})
        return
    asyncio.run(_Player(LocalWorker("worker", client.target), output).run())
    os._exit(0)  # threads of a client may be waiting for ever


if __name__ == "__main__":
    main()
