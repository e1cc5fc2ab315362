"""The parts of a scenario: cluster, sandbox, load and schedule."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sfusion_tools.errors import near

from ....fakes.errors import FaultError, SandboxSetupError
from ....fakes.faults import KINDS, Distribution, Rule, Seconds
from ....fakes.faults.lifecycle import lifecycle_rules
from ....fakes.fields import Drawn, LearnedFrom, NotHunted, NotShrunk, Reduced
from ....fakes.lifecycle.model import Lifecycle, read_lifecycle
from ....fakes.sandbox.models import Queue, Quota, Unbounded, read_model
from ....fakes.sandbox.protocol import Profile
from ...errors import BadOption
from ..client import TAKES
from ..single_calls.planned import SingleCallPart, call_id
from .base import Data, Misplaced, ScenarioPart
from .drawing import Drawing
from .episodes import Face
from .program import ProgramPart, check_printed, draw_programs

_MOST_WORKERS = 10_000
"""Chosen: larger than any cluster that trains, and it still runs in one process."""
_MOST_CALLS = 2_000_000
"""Chosen: its journal still fits into memory."""
LIFECYCLE = "lifecycle"
"""The kind of the model of sandboxes that live and die."""
SEEDS = range(1_000_000)
"""Seeds that a hunt draws; chosen: short enough to read out."""


def _model(value: Any) -> Any:
    try:
        if isinstance(value, Lifecycle) or _kind_of(value) == LIFECYCLE:
            return read_lifecycle(value)
        return read_model(value)
    except SandboxSetupError as error:
        raise ValueError(str(error)) from None


def _kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else value


def _several(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _draw_rules(drawing: Drawing, _: Data) -> list[Data]:
    rules: list[Data] = []
    if drawing.has("gentle_faults"):
        rules.append(_draw_gentle(drawing))
    if drawing.has("plain_fault"):
        rules.append(_draw_plain(drawing))
    if drawing.has("faults"):
        rules.append(drawing.rule("one"))
        if drawing.has("two_faults"):
            rules.append(drawing.rule("two"))
            if drawing.happens(0.3):  # both strike the same attempts
                own = ("name", "what", "phase")
                same = {key: value for key, value in rules[-1].items() if key not in own}
                rules.append(drawing.rule("three", same))
    return rules


def _draw_gentle(drawing: Drawing) -> Data:
    """Draw a rule that a good tool copes with: then it is known how every call must end."""
    attempts = {"first_attempts": drawing.one(1, 1, 2)}
    gentle = [what for what in _examples() if _is_gentle({**attempts, "what": what})]
    return {"name": "gentle", **attempts, "what": drawing.one(*gentle)}


def _draw_plain(drawing: Drawing) -> Data:
    """Draw a rule that is alone, often: most of these end the call whatever a tool does."""
    examples = _examples()
    final = [what for what in examples if not _is_gentle({"first_attempts": 1, "what": what})]
    what = drawing.one(*(examples if drawing.happens(0.25) else final))
    phases = Rule.model_validate({"what": what}).what[0].phases
    phase = {"phase": drawing.one(*phases)} if drawing.happens(0.3) else {}
    return {"name": "plain", "every": drawing.random.randint(1, 3), **phase, "what": what}


def _examples() -> list[Any]:
    """Return the examples of all kinds of faults."""
    examples: list[Any] = []
    for kind in KINDS.values():
        examples += kind.examples
    return examples


def _is_gentle(rule: Data) -> bool:
    read = Rule.model_validate(rule)
    return read.is_harmless or read.recovers(may_have_run=True)


def _draw_model(drawing: Drawing, _: Data) -> Any:
    """Draw a model of Sandbox Fusion."""
    model = drawing.one(Unbounded, Queue, Quota)
    return drawing.part(model, {"kind": model.model_fields["kind"].default})


def _draw_each(drawing: Drawing, sandbox: Data) -> Data | None:
    """One of several sandboxes is sick, differs in its version, or has faults of its own."""
    if "instances" not in sandbox:
        return None
    own = drawing.one(
        {"faults": [{"name": "sick", "what": {"status": 503}}]},
        {"faults": [drawing.rule("sick")]},
        {},
    )
    return {"sandbox-1": own or {"profile": "2025-06"}}


ModelPart = Annotated[Unbounded | Queue | Quota | Lifecycle, BeforeValidator(_model)]
Programs = Annotated[
    list[ProgramPart], BeforeValidator(_several), Field(min_length=1, max_length=5000)
]


class LinkPart(ScenarioPart):
    """Messages between workers and limiter."""

    delay: Annotated[Distribution, Drawn(how=lambda drawing, _: drawing.duration(1.0))] = Field(
        Distribution(numbers=(0.001,)),
        description="how long a message takes in each direction (sim only)",
    )
    loss: Annotated[float, Drawn(0.0, 0.0, 0.02, 0.1, 0.3)] = Field(
        0.0, ge=0, lt=1, description="share of lost messages (sim only)"
    )


class ClusterPart(ScenarioPart):
    """The processes that share the limiter."""

    nodes: Annotated[int, Drawn(1, 2, 3, when="nodes")] = Field(
        1, ge=1, le=1000, description="number of machines, called node-1, node-2, ..."
    )
    workers_per_node: Annotated[int, Drawn(1, 2, when="nodes"), LearnedFrom("workers")] = Field(
        1,
        ge=1,
        le=1000,
        description="number of processes on each, called n1-w1, n1-w2, ..., n2-w1, ...",
    )
    link: Annotated[LinkPart, Drawn(when="link")] = Field(
        LinkPart(), description="messages between workers and limiter"
    )

    @model_validator(mode="after")
    def _bounded(self) -> ClusterPart:
        count = self.nodes * self.workers_per_node
        if count > _MOST_WORKERS:
            raise ValueError(
                f"{self.nodes} nodes with {self.workers_per_node} workers each are {count:,} "
                f"workers; at most {_MOST_WORKERS:,} are possible"
            )
        return self

    @property
    def workers(self) -> list[str]:
        names: list[str] = []
        for node in range(1, self.nodes + 1):
            for worker in range(1, self.workers_per_node + 1):
                names.append(f"n{node}-w{worker}")
        return names


class InstancePart(ScenarioPart):
    """How one of several sandboxes differs from the others."""

    model: Annotated[
        ModelPart | None,
        NotHunted("what a sandbox that refuses calls does to the others is not known"),
    ] = Field(None, description="its behaviour under load, instead of `sandbox.model`")
    faults: list[Rule] | None = Field(
        None, description="its fault rules, instead of `sandbox.faults`"
    )
    profile: Profile | None = Field(None, description="its version, instead of `sandbox.profile`")


class SandboxPart(ScenarioPart):
    """How the fake sandbox behaves: which server it imitates, its capacity and its faults."""

    face: Annotated[
        Face | None,
        NotHunted("a hunt judges our own tool, which has no episodes"),
        NotShrunk("episodes need one, and none is simpler"),
    ] = Field(
        None,
        description="a service of sandboxes that live and die, in place of Sandbox Fusion: "
        "daytona, openenv or e2b; with `episodes`",
    )
    model: Annotated[ModelPart, Drawn(how=_draw_model, when="model")] = Field(
        Unbounded(),
        description="behaviour under load: unbounded, {kind: quota, in_flight: 8} or "
        "{kind: queue, workers: 32}; with "
        "cores, spawn_cost, ...; with a face {kind: lifecycle, boot: 2s, live: 16, ttl: 10m, ...}",
    )
    faults: Annotated[list[Rule], Drawn(how=_draw_rules)] = Field(
        [], description="fault rules: when, what and in which phase; see `sfusion explain faults`"
    )
    executor: Annotated[Literal["scripted", "python"], NotHunted("real code has real time")] = (
        Field(
            "scripted",
            description="scripted runs no code; python really runs it and stops the virtual clock",
        )
    )
    profile: Annotated[Profile, Drawn("2026-07", "2025-06", when="profile")] = Field(
        "2026-07",
        description=(
            "version of the real server to imitate: 2026-07, or 2025-06 (the published image)"
        ),
    )
    instances: Annotated[int, Drawn(2, 3, when="instances")] = Field(
        1,
        ge=1,
        le=64,
        description="number of sandboxes that share the load, called sandbox-1, sandbox-2, ...",
    )
    each: Annotated[dict[str, InstancePart], Drawn(how=_draw_each)] = Field(
        {}, description="what is different for some of them, by name: {sandbox-2: {faults: [...]}}"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_a_face(cls, data: Any) -> Any:
        """Read model and faults as those of a service of sandboxes, if one is named."""
        if not isinstance(data, dict) or data.get("face") is None:
            return data
        read = {**data, "model": data.get("model") or LIFECYCLE}
        if "faults" in data:
            try:
                read["faults"] = lifecycle_rules(data["faults"])
            except FaultError as error:
                raise ValueError(str(error)) from None
        return read

    @model_validator(mode="after")
    def _fitting(self) -> SandboxPart:
        if (self.face is not None) != isinstance(self.model, Lifecycle):
            wanted = "the model of a `face` is {kind: lifecycle, ...}, and no other is"
            raise ValueError(f"{wanted}; found face {self.face} with model {self.model.kind}")
        return self

    @property
    def names(self) -> list[str]:
        return [f"sandbox-{number}" for number in range(1, self.instances + 1)]

    @property
    def settings(self) -> list[SandboxPart]:
        """Return the settings of each sandbox."""
        return [self.instance(number) for number in range(1, self.instances + 1)]

    def instance(self, number: int) -> SandboxPart:
        """Return the settings of one sandbox, counted from 1."""
        own = self.each.get(f"sandbox-{number}", InstancePart())
        return self.model_copy(update={key: value for key, value in own if value is not None})


class CancelPart(ScenarioPart):
    """Callers that give up on their calls."""

    share: Annotated[float, Drawn(0.2, 0.5, 1.0)] = Field(
        1.0, ge=0, le=1, description="share of the calls, chosen by the call's id"
    )
    after: Annotated[Distribution, Drawn(how=lambda drawing, _: drawing.duration(6.0))] = Field(
        description="time from the start of a call to its cancellation"
    )


def _draw_callers(drawing: Drawing, load: Data) -> int:
    return min(int(load["calls"]), drawing.random.choice((1, 2, 4, 6, 12, 24)))


def _draw_pause(drawing: Drawing, _: Data) -> Any:
    return drawing.one(drawing.duration(6.0), {"choice": [3.99, 4.01, 4.99, 5.0, 5.01]})


def _one_program(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


class ObservedPart(ScenarioPart):
    """What the log showed that a scenario was learned from; `sfusion sweep` recommends nothing
    beyond it."""

    rate_limit: Annotated[tuple[int, int | None], NotHunted("does nothing in a run")] = Field(
        (1, None),
        description=(
            "from how many in flight to how many the log tells; null: callers "
            "never waited for a permit"
        ),
    )
    callers: Annotated[int | None, NotHunted("does nothing in a run")] = Field(
        None,
        description=(
            "with more of them than these the server was not seen; null: the log shows what more "
            "of them meet"
        ),
    )
    compared: Annotated[bool, NotHunted("does nothing in a run")] = Field(
        False,
        description=(
            "the log had several limits, and the lowest of `rate_limit` did as much as the others"
        ),
    )
    unknown: Annotated[str, NotHunted("does nothing in a run")] = Field(
        "", description="what the log does not tell, and what would"
    )
    processes: Annotated[int, NotHunted("does nothing in a run")] = Field(
        1,
        ge=1,
        description=(
            "how many processes have a limiter of their own: `rate_limit` is the total here, and "
            "`sweep` says how much of it to set in each"
        ),
    )
    server_time: Annotated[list[str], NotHunted("does nothing in a run")] = Field(
        default_factory=list,
        description=(
            "fault rules that stand for what the server adds to programs: `sweep --model` takes "
            "them out, because the measured model has that time in it"
        ),
    )


_FEWEST_DIGITS = 4
"""Of the number in a call's id; chosen: c0001 in most scenarios."""


_MOST_SINGLE = 10_000
"""Calls that `each` stands for; chosen: they are planned one by one, and far fewer are needed."""


def _check_needs(names: list[str], *path: str | int) -> None:
    for place, name in enumerate(names):
        if name not in TAKES:
            text = f"needs: {name!r} is not what a client takes; {near(name, TAKES)}"
            raise Misplaced(text, *path, "needs", place)


class LoadPart(ScenarioPart):
    """Calls made directly to the tool, as many concurrent rollouts would make them."""

    calls: Annotated[int, Drawn(3, 6, 8, 12, 12, 16, 24, 32), LearnedFrom("figures.calls")] = Field(
        100, ge=1, le=_MOST_CALLS, description="total number of calls, called c0001, c0002, ..."
    )
    concurrency: Annotated[int, Drawn(how=_draw_callers), LearnedFrom("load.concurrency")] = Field(
        16,
        ge=1,
        le=100_000,
        description="number of callers, spread over the workers; each makes one call at a time",
    )
    program: Annotated[Programs, Drawn(how=draw_programs), Reduced(how=_one_program)] = Field(
        [ProgramPart()],
        alias="program",
        description="what each call runs; from a list, each call draws one by `share`",
    )
    think: Annotated[
        Distribution, Drawn(how=_draw_pause, when="think"), LearnedFrom("load.think")
    ] = Field(Distribution(numbers=(0.0,)), description="pause of a caller before each call")
    cancel: Annotated[CancelPart | None, Drawn(when="cancel")] = Field(
        None, description="cancel some of the calls"
    )
    steps: Annotated[int, Drawn(2, 3, 5, when="steps"), LearnedFrom("load.steps")] = Field(
        1,
        ge=1,
        le=1_000_000,
        description="the calls come in this many steps, as in training: all of one end first",
    )
    step_pause: Annotated[
        Seconds, Drawn(0.0, 0.317, 6.047, 90.089, when="steps"), LearnedFrom("load.step_pause")
    ] = Field(0.0, description="pause after each step but the last")
    each: Annotated[
        list[SingleCallPart], NotHunted("a hunt judges our own tool by many calls alike")
    ] = Field(
        [],
        max_length=5000,
        description="single calls instead of many alike: each says what is asked for, what its "
        "program does and how it must end; called c0001, c0002, ...",
    )
    needs: Annotated[list[str], NotHunted("only for `each`"), NotShrunk("says who can play it")] = (
        Field([], description="what a client must take for `each`; see docs/judge.md")
    )

    @model_validator(mode="after")
    def _single_calls(self) -> LoadPart:
        others = sorted(self.model_fields_set - {"each", "needs"})
        if "each" in self.model_fields_set and not self.each:
            raise ValueError("`each` is empty: list at least one call, or leave it out")
        if self.each and others:
            raise ValueError(f"`each` lists single calls, so that `{others[0]}` says nothing")
        count = sum(part.times for part in self.each)
        if count > _MOST_SINGLE:
            text = f"`each` stands for {count:,} calls; at most {_MOST_SINGLE:,} are allowed"
            raise Misplaced(text, "load", "each")
        _check_needs(self.needs, "load")
        single = self.single_calls
        for number, part in enumerate(self.each):
            _check_needs(part.needs, "load", "each", number)
            if part.program_of is not None and part.program_of not in single:
                known = f"the calls are {call_id(1)} to {call_id(len(single))}"
                text = f"program_of: there is no call {part.program_of!r}; {known}"
                raise Misplaced(text, "load", "each", number, "program_of")
        return self

    @property
    def count(self) -> int:
        """Return how many calls there are."""
        return len(self.single_calls) or self.calls

    @cached_property
    def single_calls(self) -> dict[str, SingleCallPart]:
        """Return the calls of `each` by their ids."""
        parts = itertools.chain.from_iterable(part.each() for part in self.each)
        return {call_id(number): part for number, part in enumerate(parts, 1)}

    @model_validator(mode="after")
    def _every_program_has_a_call(self) -> LoadPart:
        ids = Counter(part.call for part in self.program if part.call is not None)
        for call, times in ids.items():
            number = int(call[1:]) if re.fullmatch(r"c[0-9]+", call) else 0
            exists = 1 <= number <= self.calls and call == self.call_id(number)
            if not exists or times > 1:
                known = f"the calls are {self.call_id(1)} to {self.call_id(self.calls)}"
                raise ValueError(
                    f"program: there is no call {call!r} for it; {known}, each with one program"
                )
        if len(ids) == len(self.program) < self.calls:
            raise ValueError("program: the other calls need a program without `call`")
        check_printed(self.calls * max(part.printed for part in self.program))
        return self

    def call_id(self, number: int) -> str:
        """Return the id of a call, numbered from 1."""
        digits = max(_FEWEST_DIGITS, len(str(self.calls)))
        return f"c{number:0{digits}d}"


Deviation = tuple[
    Annotated[int, Field(ge=1), NotShrunk("another step is another deviation")],
    Annotated[int, Field(ge=1)],
]
"""A step and the number of the callback that ran then instead of number 0, the first of the
queue."""


def _draw_priority(drawing: Drawing, schedule: Data) -> int | None:
    return None if schedule else drawing.random.choice(SEEDS)


def _draw_changes(drawing: Drawing, schedule: Data) -> int | None:
    return drawing.random.randint(1, 4) if "priority" in schedule else None


class SchedulePart(ScenarioPart):
    """One of random, priority and deviations. Without a schedule the order is first in, first
    out."""

    random: Annotated[int | None, Drawn(SEEDS, share=0.5), NotShrunk("a seed")] = Field(
        None, ge=0, description="seed: each step draws one of the ready callbacks"
    )
    priority: Annotated[int | None, Drawn(how=_draw_priority), NotShrunk("a seed")] = Field(
        None,
        ge=0,
        description="seed: the callback of the highest priority runs; priorities are drawn",
    )
    changes: Annotated[int | None, Drawn(how=_draw_changes)] = Field(
        None,
        ge=0,
        le=1000,
        description="with priority: how often the running one drops to the lowest (default 3)",
    )
    deviations: Annotated[list[Deviation] | None, NotHunted("spelled out by the shrinker")] = Field(
        None,
        description=(
            "an explicit schedule: [step, number] pairs; all other steps run the first in the queue"
        ),
    )

    @model_validator(mode="after")
    def _one_way(self) -> SchedulePart:
        given = [
            key for key in ("random", "priority", "deviations") if getattr(self, key) is not None
        ]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"give exactly one of random, priority and deviations; found {found}")
        if self.changes is not None and self.priority is None:
            raise ValueError("`changes` belongs to `priority`")
        steps = [step for step, _ in self.deviations or ()]
        if any(later <= step for step, later in itertools.pairwise(steps)):
            raise ValueError("deviations: steps must increase")
        return self


def read_schedule(text: str) -> dict[str, int]:
    """Read the value of ``--schedule``: SEED, priority:SEED or priority:SEED:CHANGES; raise
    BadOption."""
    found = re.fullmatch(r"([0-9]+)|priority:([0-9]+)(?::([0-9]+))?", text, re.ASCII)
    if found is None:
        raise BadOption(f"--schedule {text}: expected SEED, priority:SEED or priority:SEED:CHANGES")
    random, priority, changes = found.groups()
    if random is not None:
        return {"random": int(random)}
    if changes is None:
        return {"priority": int(priority)}
    return {"priority": int(priority), "changes": int(changes)}
