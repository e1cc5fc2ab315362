"""The toy of a training as the model of rollouts: the fake engine asks it, and its calls go through
the real stack."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from sfusion_tools.errors import GuardTripped
from sfusion_tools.gsm8k_tool import compute_score
from sfusion_tools.rollout import AsyncRolloutRequest, Message
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State

from ....fakes.faults import Distribution, Rule
from ....fakes.sglang import Ask, Reply, ToolCall, problems
from ..scenarios.program import PreparedCall, ProgramPart
from ..scenarios.training import TrainingPart
from ..toy import Toy, ToySample, TrainedStep
from .worker_rollouts import Note

_ENDLESS = Distribution(numbers=(1e6,))
"""Seconds of a program that never ends: more than any limit of a sandbox (chosen)."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
GIVES_UP = "The tool gives me no result."
OnSample = Callable[[AsyncRolloutRequest, float, int], None]
"""Called with a trajectory that has ended, its score and its step."""


class ToyModel:
    """Does what the toy decides: sends programs, reads what the tool answers, and states an answer
    to be scored."""

    format = "hermes"
    steps_per_turn = 1_000_000
    faults: Sequence[Rule] = ()

    def __init__(
        self,
        part: TrainingPart,
        seed: int,
        note: Note,
        *,
        real: bool = False,
        on_sample: OnSample | None = None,
    ) -> None:
        """With ``real``, the code of its programs really prints what they print."""
        self.toy = Toy(part, seed)
        self.think = part.think
        self._part = part
        self._seed = seed
        self._note = note
        self._real = real
        self._on_sample = on_sample
        self._problems = problems(seed, part.prompts * part.steps + 1)[1:]
        self._samples: dict[str, ToySample] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        """The question of each group, and its right answer."""
        self._prepared: dict[str, PreparedCall] = {}
        self._read: dict[str, str] = {}
        self._ended: set[str] = set()
        self.stopped = False
        """The guard has ended the job."""

    def begin(self) -> list[str]:
        """Begin a step; return the names of its trajectories."""
        samples = self.toy.begin()
        self._samples = {sample.id: sample for sample in samples}
        groups = dict.fromkeys(sample.group for sample in samples)
        asked = self._problems[: len(groups)]
        self._problems = self._problems[len(groups) :]
        self._asked = {}
        for group, problem in zip(groups, asked, strict=True):
            self._asked[group] = problem.question, problem.ground_truth
        self._prepared = {}
        self._read = {}
        self._ended = set()
        return list(self._samples)

    def learn(self, twin: TrainedStep) -> dict[str, Any]:
        """Update by the trajectories that ended; return what is recorded of the step."""
        ended = [sample for name, sample in self._samples.items() if name in self._ended]
        step = self.toy.learn(ended)
        return {**step.as_data(self._part), "twin": twin.as_data(self._part)}

    def request(self, name: str) -> dict[str, Any]:
        sample = self._samples[name]
        group, _, offset = name.rpartition("-k")
        return {
            "messages": [Message(role="user", content=self._asked[sample.group][0])],
            "group_id": group,
            "rollout_offset": int(offset) - 1,
            "sampling_seed": int(offset),
        }

    def reply(self, ask: Ask) -> Reply:
        sample = self._samples[ask.rid]
        truth = self._asked[sample.group][1]
        if ask.turn > len(sample.results):
            self._read_result(sample, "\n".join(ask.tool_results))
        calls = sample.calls_next
        self._note("engine", "spoke", rollout=sample.id, turn=ask.turn + 1, calls=int(calls))
        if calls:
            arguments = self._program(sample.next_call).arguments
            return Reply("", (ToolCall(ask.tool_names[0], arguments),))
        if sample.gave_up:
            return Reply(f"#### {truth}" if sample.guessed else GIVES_UP)
        return Reply(f"#### {self._read.get(sample.id) or self._printed(sample)}")

    def _read_result(self, sample: ToySample, text: str) -> None:
        """Take the number in the last line of what the tool answered."""
        lines = text.strip().splitlines()
        last = lines[-1].strip() if lines else ""
        number = last if _NUMBER.fullmatch(last) else None
        sample.results.append(number is not None)
        sample.fooled = number is not None and number != self._printed(sample)
        sample.lies += sample.fooled
        self._read[sample.id] = number or ""

    def _printed(self, sample: ToySample) -> str:
        """Return what its program prints, or what it thinks by itself."""
        truth = self._asked[sample.group][1]
        return truth if sample.right else f"{truth}1"

    def _program(self, call: str) -> PreparedCall:
        found = self._prepared.get(call)
        if found is None:
            sample = self._samples[call.rpartition(".c")[0]]
            part = ProgramPart(
                prints=f"{self._printed(sample)}\n", seconds=self._seconds(sample), real=self._real
            )
            found = self._prepared[call] = part.prepare(call, self._seed)
        return found

    def _seconds(self, sample: ToySample) -> Distribution:
        """Return how long the programs of a sample run."""
        if sample.endless:
            return _ENDLESS
        seconds = self._part.seconds
        length = sample.behaviour.length
        return seconds if length == 1 else seconds.scaled(length)

    def by_call(self, call: str) -> PreparedCall | None:
        return self._program(call) if call.rpartition(".c")[0] in self._samples else None

    def ended(self, request: AsyncRolloutRequest) -> None:
        sample = self._samples[request.request_id]
        last = request.messages[-1]
        text = ""
        if last.role == "assistant" and isinstance(last.content, str):
            text = last.content
        right = compute_score(text, self._asked[sample.group][1]) > 0
        sample.score = self.toy.reward(sample, right) if text else 0.0
        sample.aborted = request.state is State.FAILED
        left_out = sample.endless and sample.lost  # the trainer's own rule, whatever the tool says
        sample.known = request.metrics.last_call_lost or sample.aborted or left_out
        self.stopped = self.stopped or (request.failure or "").startswith(GuardTripped.__name__)
        self._ended.add(request.request_id)
        if self._on_sample is not None:
            self._on_sample(request, sample.score, self.toy.step)
