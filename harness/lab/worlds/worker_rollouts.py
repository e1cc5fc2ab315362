"""Multi-turn rollouts in a world: the fake engine, the real rollout driver and the worker's
tool."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from sfusion_tools.errors import GuardTripped
from sfusion_tools.rollout import (
    AsyncRolloutRequest,
    Message,
    RolloutDriver,
    RolloutLimits,
    format_parser,
)
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.sandbox.tool import CODE_INTERPRETER

from ....fakes.call_mark import CALL_MARK
from ....fakes.errors import SlowPattern
from ....fakes.faults import Rule
from ....fakes.faults.pattern import PatternSearches
from ....fakes.sglang import Ask, FakeSGLang, Finish, Latency, Reply, ToolCall
from ....fakes.sglang.generation import GenerateCall
from ....fakes.sglang.malformed import malformed
from ..scenarios.model import Scenario
from ..scenarios.program import PreparedCall
from ..scenarios.rollouts import RolloutPart
from .calling import raised_facts, read_result

_NAMED = re.compile(r"\[(r[0-9]+)\]")
_LIMITS = tuple(RolloutLimits.__dataclass_fields__)

Note = Callable[..., None]
Allowed = Callable[[PreparedCall | None, Any], float | None]
"""Returns the seconds that the tool allows for a call with these arguments."""


class Model(Protocol):
    """What plays the model of the rollouts: a policy of the fake engine whose calls are known by
    their ids."""

    format: str
    think: float
    faults: Sequence[Rule]
    steps_per_turn: int
    """Tokens that the engine yields at once."""

    def reply(self, ask: Ask) -> Reply: ...

    def by_call(self, call: str) -> PreparedCall | None:
        """Return the program of a call by its id; None if the model makes no such call."""
        ...

    def request(self, name: str) -> dict[str, Any]:
        """Return what a request for this trajectory has beside its tools: messages, group, seed."""
        ...

    def ended(self, request: AsyncRolloutRequest) -> None:
        """Called when a trajectory has ended."""
        ...


class ScriptedModel:
    """A model that follows the turns of a scenario; its calls carry the trajectory's id."""

    steps_per_turn = 4

    def __init__(self, part: RolloutPart, seed: int, tool: str, note: Note) -> None:
        self.part = part
        self.seed = seed
        self.tool = tool
        self.note = note
        self.format = part.format
        self.think = part.think
        self.faults: Sequence[Rule] = part.faults
        self._searches = PatternSearches()

    def request(self, name: str) -> dict[str, Any]:
        return {"messages": [Message(role="user", content=f"{self.part.prompt} [{name}]")]}

    def ended(self, request: AsyncRolloutRequest) -> None: ...

    def reply(self, ask: Ask) -> Reply:
        found = _NAMED.search(ask.question)
        name = found[1] if found else "r000"
        number = ask.turn
        turns = self.part.turns
        if number >= len(turns) and not self.part.repeat:
            self.note("engine", "spoke", rollout=name, turn=number + 1, calls=0)
            return Reply(text="I have nothing to add.")
        turn = turns[min(number, len(turns) - 1)]
        results = "\n".join(ask.tool_results)
        if turn.sees is not None and not self._searches.matches(turn.sees, results):
            self.note("engine", "spoke", rollout=name, turn=number + 1, calls=0, missed=turn.sees)
            return Reply(text="I give up.")
        programs = [self.prepared(name, number, place) for place in range(len(turn.programs))]
        self.note("engine", "spoke", rollout=name, turn=number + 1, calls=len(programs))
        if turn.raw is not None:
            codes = [program.arguments["code"] for program in programs]
            return Reply(text=turn.raw_text(codes).replace("{id}", name))
        say = turn.say.replace("{id}", name)
        if turn.malformed is not None:
            return self._malformed(turn.malformed, say, programs)
        calls = tuple(ToolCall(self.tool, program.arguments) for program in programs)
        return Reply(text=say, calls=calls)

    def _malformed(self, kind: str, say: str, programs: list[PreparedCall]) -> Reply:
        """Return a reply in which a call is written wrongly."""
        calls = [{"name": self.tool, "arguments": call.arguments} for call in programs[:2]]
        wrong = malformed(kind, self.part.format, self.seed, *calls)
        assert wrong is not None
        finish = None if wrong.finish_reason == "stop" else Finish(wrong.finish_reason)
        return Reply(say + wrong.text, finish=finish)

    def prepared(self, name: str, turn: int, place: int) -> PreparedCall:
        """Return the program of one call."""
        turns = self.part.turns
        part = turns[min(turn, len(turns) - 1)].programs[place]
        return part.prepare(f"{name}.t{turn + 1}.{place + 1}", self.seed)

    def by_call(self, call: str) -> PreparedCall | None:
        name, _, rest = call.partition(".t")
        turn, _, place = rest.partition(".")
        try:
            return self.prepared(name, int(turn) - 1, int(place) - 1)
        except (ValueError, IndexError):
            return None


@dataclass
class WatchedTool:
    """Wraps a tool and records its calls with their ids."""

    tool: Any
    of: Rollouts
    longest: int = 0
    """Length of the longest tool message."""
    _unmarked: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tool, name)

    async def execute(self, instance_id: str, parameters: Any, **kwargs: Any) -> Any:
        """Run a call and record it."""
        call = self._call_of(instance_id, parameters)
        prepared = self.of.model.by_call(call)
        note = self.of.note
        facts = {"call": call, "worker": self.of.worker}
        note("world", "called", **facts, **self._called(prepared, parameters))
        try:
            answer = await self.tool.execute(instance_id, parameters, call_id=call, **kwargs)
        except asyncio.CancelledError:
            note("world", "cancelled" if self.of.is_alive() else "lost", **facts)
            raise
        except (Exception, GuardTripped) as error:
            note("world", "returned", **facts, **raised_facts(error))
            raise
        returned = read_result(answer, None if prepared is None else prepared.truth)
        self.longest = max(self.longest, returned["chars"])
        if self.of.is_alive():
            note("world", "returned", **facts, **returned)
        else:
            note("world", "lost", **facts)
        return answer

    def _call_of(self, instance_id: str, parameters: Any) -> str:
        """Return the id of a call: the mark in its code, or a number."""
        code = parameters.get("code") if isinstance(parameters, dict) else None
        mark = CALL_MARK.search(code) if isinstance(code, str) else None
        if mark is not None:
            return mark[1]
        self._unmarked += 1
        return f"{instance_id}.x{self._unmarked}"

    def _called(self, prepared: PreparedCall | None, parameters: Any) -> dict[str, Any]:
        """Return the keys of the event ``called`` beside call and worker."""
        scenario = self.of.scenario
        facts: dict[str, Any] = {"intent": {"kind": "real"}}
        if prepared is not None:
            facts["intent"] = prepared.intent(scenario.default_timeout)
        facts["allowed"] = self.of.allowed(prepared, parameters)
        asked = scenario.asked(parameters)
        if asked:
            facts["asked"] = asked
        return facts


class _RecordedEngine(FakeSGLang):
    """The engine of a run: the journal says which pattern it gave up."""

    def __init__(self, model: Model, note: Note, **options: Any) -> None:
        super().__init__(model, **options)
        self._note = note

    async def generate(self, call: GenerateCall) -> Any:
        try:
            return await super().generate(call)
        except SlowPattern as error:
            self._note("engine", "slow_pattern", why=str(error))
            raise


@dataclass
class Rollouts:
    """The trajectories of one worker's tool."""

    scenario: Scenario
    model: Model
    own_tool: Any
    limits: RolloutLimits
    note: Note
    worker: str = ""
    allowed: Allowed = lambda prepared, arguments: None
    is_alive: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        model = self.model
        self._strikes = Counter[str]()
        self.tool = WatchedTool(self.own_tool, self)
        self._engine = _RecordedEngine(
            model,
            self.note,
            format=model.format,
            latency=Latency(first_token=model.think),
            stream_interval=model.steps_per_turn,
            faults=model.faults,
            seed=self.scenario.seed,
        )
        # The driver needs only verl's interface, which WatchedTool has.
        self._driver = RolloutDriver(self._engine, [self.tool], format_parser(model.format))  # type: ignore[list-item]

    def request(self, name: str) -> AsyncRolloutRequest:
        """Return a trajectory that has not begun."""
        schema = getattr(self.tool, "tool_schema", None) or CODE_INTERPRETER
        return AsyncRolloutRequest(
            request_id=name, tool_schemas=[schema], limits=self.limits, **self.model.request(name)
        )

    async def run(self, request: AsyncRolloutRequest) -> None:
        """Run one trajectory to its end and record it."""
        self.note("world", "rollout_started", rollout=request.request_id, worker=self.worker)
        try:
            # A guard would end the job; here the run goes on to show what follows.
            with suppress(GuardTripped):
                await self._driver.run(request)
        finally:
            self._note_strikes()
            if self.is_alive():
                self.model.ended(request)
                self.note("world", "rollout_ended", **self._ending(request))
            else:
                self.note("world", "rollout_lost", rollout=request.request_id, worker=self.worker)

    def _note_strikes(self) -> None:
        """Record how often each fault of the engine has struck since the last time."""
        before = self._strikes
        self._strikes = Counter(self._engine.fault_strikes())
        for rule, count in (self._strikes - before).items():
            self.note("engine", "strike", rule=rule, count=count)

    def _ending(self, request: AsyncRolloutRequest) -> dict[str, Any]:
        begun = request.state is not State.PENDING
        lists = ("input_ids", "attention_mask", "position_ids", "loss_mask")
        lengths = {name: len(getattr(request, name)) for name in lists}
        lengths |= {"prompt": len(request.prompt_ids), "response": len(request.response_ids)}
        scores = [score for score in request.reward_scores.values() if score not in (None, [])]
        return {
            "rollout": request.request_id,
            "worker": self.worker,
            "state": request.state.value,
            "ended_by": request.ended_by.value if request.ended_by is not None else None,
            "failure": request.failure,
            "turns": request.metrics.assistant_turns,
            "lengths": lengths if begun else dict.fromkeys(lengths, 0),
            "limits": {
                name: getattr(self.limits, name) for name in _LIMITS if name.endswith("_len")
            },
            "outcomes": dict(sorted(request.metrics.outcomes.items())),
            "refused": dict(sorted(request.metrics.refused.items())),
            "infrastructure_failures": request.metrics.infrastructure_failures,
            "scored": scores[0] if scores else None,
        }
