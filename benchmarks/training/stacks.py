"""Stacks in processes of their own: the calls of many trainings, answered side by side."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from .conditions import Condition
from .sandbox import Reply, Stack

Asked = tuple[Condition, int, Sequence[str]]
"""A training, its step (0: a healthy sandbox), and the texts that end with a call."""


class Stacks:
    """Worker processes; a training is always answered by the same one."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Stacks:
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()

    def answer(self, asked: Mapping[int, Asked]) -> dict[int, list[Reply]]:
        """Answer the calls of some trainings, named by number."""
        shares: list[dict[int, Asked]] = [{} for _ in self._pipes]
        for number, request in asked.items():
            shares[number % len(shares)][number] = request
        busy = [place for place, share in enumerate(shares) if share]
        for place in busy:
            self._pipes[place].send(shares[place])
        replies: dict[int, list[Reply]] = {}
        for place in busy:
            told = self._pipes[place].recv()
            if isinstance(told, Exception):
                raise told
            replies.update(told)
        return replies


def _work(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    stacks: dict[str, Stack] = {}
    while (share := await loop.run_in_executor(None, pipe.recv)) is not None:
        try:
            told: Any = await _answer(stacks, share)
        except Exception as error:
            told = error
        pipe.send(told)
    for stack in stacks.values():
        await stack.stop()


async def _answer(stacks: dict[str, Stack], share: Mapping[int, Asked]) -> dict[int, list[Reply]]:
    replies: dict[int, list[Reply]] = {}
    for number, (condition, step, texts) in share.items():
        name = condition.name if step else "healthy"
        if name not in stacks:
            stacks[name] = Stack(condition if step else None)
            await stacks[name].start()
        stacks[name].begin_step(step)
        replies[number] = await stacks[name].answer(texts)
    return replies
