"""What a client is given for one episode: a pure function of scenario and seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ....fakes.call_mark import mark_for
from ....fakes.faults.chance import drawer
from ....fakes.sandbox.protocol import short_digest
from ..scenarios.episodes import EpisodesPart, StepPart

StepKind = Literal["exec", "write", "read"]
EPISODE_LABEL = "sfusion.episode"
"""The label by which a sandbox is known to be of an episode."""


@dataclass(frozen=True)
class EpisodeStep:
    """One step: a command to run, or a file to write or to read."""

    call: str
    """Its name, as in the journal: e0001.s2."""
    kind: StepKind
    command: str = ""
    """What to run, as a command of a shell."""
    code: str = ""
    """The same as a line of Python."""
    path: str = ""
    """The file, in the home directory."""
    content: str = ""
    """What to write."""
    think: float = 0.0
    """Seconds to wait before it."""
    answer: str = field(default="", repr=False)
    """What the sandbox answers if all is well, for the judge: a client must not look at it."""


@dataclass(frozen=True)
class EpisodeTask:
    """What an episode is about. Its client returns a score, or a mapping with ``score``,
    ``outcome`` and ``answers`` (what its commands printed), or raises."""

    id: str
    """The name of the episode: e0001."""
    face: str
    """The service: daytona, openenv or e2b."""
    url: str
    """The address of the service; also in the variables that its SDK reads."""
    steps: tuple[EpisodeStep, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that the service's SDK reads, which are set while it runs."""

    @property
    def labels(self) -> dict[str, str]:
        """Return labels (or metadata) for the sandbox, by which the journal knows its episode."""
        return {EPISODE_LABEL: self.id}


def plan_steps(part: EpisodesPart, number: int, seed: int) -> tuple[EpisodeStep, ...]:
    """Return the steps of an episode, numbered from 1."""
    episode = part.name(number)
    written: dict[str, str] = {}
    steps: list[EpisodeStep] = []
    taken = [step for step in part.steps if step.is_in(number)]
    for place, step in enumerate(taken, 1):
        call = f"{episode}.s{place}"
        think = part.think.sample(drawer(seed, "think", call)) if place > 1 else 0.0
        steps.append(_step(step, call, seed=seed, think=think, written=written))
    return tuple(steps)


def _step(
    part: StepPart, call: str, *, seed: int, think: float, written: dict[str, str]
) -> EpisodeStep:
    """Return one step; ``written`` is what files hold, by name."""
    if part.write is not None:
        content = f"{_nonce(call, seed)} # {mark_for(call)}\n"
        written[part.write] = content
        return EpisodeStep(call, "write", path=part.write, content=content, think=think)
    if part.read is not None:
        answer = written.get(part.read, "")
        return EpisodeStep(call, "read", path=part.read, answer=answer, think=think)
    assert part.exec is not None
    nonce = _nonce(call, seed)
    seconds = part.exec.seconds.sample(drawer(seed, "seconds", call))
    hints = [f"prints={json.dumps(nonce)}"]
    if seconds:
        hints.append(f"seconds={seconds:.6g}")
    if part.exec.exit:
        hints.append(f"exit={part.exec.exit}")
    comment = f"# {mark_for(call)} {' '.join(hints)}"
    return EpisodeStep(
        call,
        "exec",
        command=f"echo {nonce} {comment}",
        code=f"print('{nonce}') {comment}",
        think=think,
        answer=nonce,
    )


def _nonce(call: str, seed: int) -> str:
    """Return a text that occurs nowhere else in a run."""
    return f"nonce-{short_digest(f'{seed}:{call}')}"
