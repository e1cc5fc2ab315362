"""The model of scenario files. `sfusion explain`, the JSON Schema and the docs show the descriptions of its fields."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, SerializeAsAny, field_validator, model_validator

from sfusion.fakes.errors import SandboxSetupError
from sfusion.fakes.faults import Distribution, Rule, Seconds
from sfusion.fakes.sandbox.models import Queue, Quota, Unbounded, read_model
from sfusion.fakes.sandbox.protocol import Profile
from sfusion.harness.lab.promises import Promise, read_promise
from sfusion.harness.lab.scenarios.base import Misplaced, ScenarioPart
from sfusion.harness.lab.scenarios.events import EventPart
from sfusion.harness.lab.scenarios.incidents import Incident
from sfusion.harness.lab.scenarios.program import ProgramPart, check_printed
from sfusion.harness.lab.scenarios.rollouts import RolloutPart
from sfusion.harness.lab.scenarios.schedule import SchedulePart
from sfusion.harness.lab.scenarios.secrets import masked, secrets_in
from sfusion_tools.errors import near
from sfusion_tools.marked_yaml import Path_

World = Literal["sim", "ray"]
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MOST_WORKERS = 10_000
_MOST_CALLS = 2_000_000
OWN_CLASSES = (
    "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
    "sfusion_tools.sandbox.tool.SandboxFusionTool",
)
_REPLACED = {"sandbox_fusion_url": "the world provides the address", "limiter": "the world provides the limiter"}


def _model(value: Any) -> Any:
    try:
        return read_model(value)
    except SandboxSetupError as error:
        raise ValueError(str(error)) from None


def _several(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


ModelPart = Annotated[Unbounded | Queue | Quota, BeforeValidator(_model)]
Programs = Annotated[list[ProgramPart], BeforeValidator(_several), Field(min_length=1, max_length=5000)]
PromisePart = Annotated[SerializeAsAny[Promise], BeforeValidator(read_promise)]


class LinkPart(ScenarioPart):
    """Messages between workers and limiter."""

    delay: Distribution = Field(
        Distribution(numbers=(0.001,)), description="how long a message takes in each direction (sim only)"
    )
    loss: float = Field(0.0, ge=0, lt=1, description="share of lost messages (sim only)")


class ClusterPart(ScenarioPart):
    """The processes that share the limiter."""

    nodes: int = Field(1, ge=1, le=1000, description="number of machines, called node-1, node-2, ...")
    workers_per_node: int = Field(
        1, ge=1, le=1000, description="number of processes on each, called n1-w1, n1-w2, ..., n2-w1, ..."
    )
    link: LinkPart = Field(LinkPart(), description="messages between workers and limiter")

    @model_validator(mode="after")
    def _bounded(self) -> ClusterPart:
        if (count := self.nodes * self.workers_per_node) > _MOST_WORKERS:
            raise ValueError(
                f"{self.nodes} nodes with {self.workers_per_node} workers each are {count:,} workers; "
                f"at most {_MOST_WORKERS:,} are possible"
            )
        return self

    @property
    def workers(self) -> list[str]:
        return [f"n{n}-w{w}" for n in range(1, self.nodes + 1) for w in range(1, self.workers_per_node + 1)]


class InstancePart(ScenarioPart):
    """How one of several sandboxes differs from the others."""

    model: ModelPart | None = Field(None, description="its behaviour under load, instead of `sandbox.model`")
    faults: list[Rule] | None = Field(None, description="its fault rules, instead of `sandbox.faults`")
    profile: Profile | None = Field(None, description="its version, instead of `sandbox.profile`")


class SandboxPart(ScenarioPart):
    """How the fake sandbox behaves: which server it imitates, its capacity and its faults."""

    model: ModelPart = Field(
        Unbounded(),
        description="behaviour under load: unbounded, {quota: 8} or {queue: 32}, with cores, spawn_cost, ...",
    )
    faults: list[Rule] = Field(
        [], description="fault rules: when, what and in which phase; see `sfusion explain faults`"
    )
    executor: Literal["scripted", "python"] = Field(
        "scripted", description="scripted runs no code; python really runs it and stops the virtual clock"
    )
    profile: Profile = Field(
        "2026-07", description="version of the real server to imitate: 2026-07, or 2025-06 (the published image)"
    )
    instances: int = Field(
        1, ge=1, le=64, description="number of sandboxes that share the load, called sandbox-1, sandbox-2, ..."
    )
    each: dict[str, InstancePart] = Field(
        {}, description="what is different for some of them, by name: {sandbox-2: {faults: [...]}}"
    )

    @property
    def names(self) -> list[str]:
        return [f"sandbox-{number}" for number in range(1, self.instances + 1)]

    def instance(self, number: int) -> SandboxPart:
        """Return the settings of one sandbox, counted from 1."""
        own = self.each.get(f"sandbox-{number}", InstancePart())
        return self.model_copy(update={key: value for key, value in own if value is not None})


class CancelPart(ScenarioPart):
    """Callers that give up on their calls."""

    share: float = Field(1.0, ge=0, le=1, description="share of the calls, chosen by the call's id")
    after: Distribution = Field(description="time from the start of a call to its cancellation")


class LoadPart(ScenarioPart):
    """Calls made directly to the tool, as many concurrent rollouts would make them."""

    calls: int = Field(100, ge=1, le=_MOST_CALLS, description="total number of calls, called c0001, c0002, ...")
    concurrency: int = Field(
        16, ge=1, le=100_000, description="number of callers, spread over the workers; each makes one call at a time"
    )
    program: Programs = Field(
        [ProgramPart()], alias="program", description="what each call runs; from a list, each call draws one by `share`"
    )
    think: Distribution = Field(Distribution(numbers=(0.0,)), description="pause of a caller before each call")
    cancel: CancelPart | None = Field(None, description="cancel some of the calls")
    steps: int = Field(
        1, ge=1, le=1_000_000, description="the calls come in this many steps, as in training: all of one end first"
    )
    step_pause: Seconds = Field(0.0, description="pause after each step but the last")

    @model_validator(mode="after")
    def _every_program_has_a_call(self) -> LoadPart:
        ids = Counter(part.call for part in self.program if part.call is not None)
        for call, times in ids.items():
            number = int(call[1:]) if re.fullmatch(r"c[0-9]+", call) else 0
            if call != self.call_id(number) or not 1 <= number <= self.calls or times > 1:
                known = f"the calls are {self.call_id(1)} to {self.call_id(self.calls)}, each with one program"
                raise ValueError(f"program: there is no call {call!r} for it; {known}")
        if len(ids) == len(self.program) < self.calls:
            raise ValueError("program: the other calls need a program without `call`")
        check_printed(self.calls * max(part.printed for part in self.program))
        return self

    def call_id(self, number: int) -> str:
        """Return the id of a call, numbered from 1."""
        return f"c{number:0{max(4, len(str(self.calls)))}d}"


class Scenario(ScenarioPart):
    """A scenario: where it runs, which load and faults it has, and which promises must hold."""

    scenario: str = Field(description="name: lowercase letters, digits, - . _")
    about: str = Field(min_length=1, description="what is tested and what is expected")
    incident: Incident = Field(
        (), description="where this failure was reported: owner/repository#number, or several of them"
    )
    expected: str = Field("", description="what a good stack does; required with `incident`")
    worlds: list[World] = Field(["sim"], min_length=1, description="where it can run: sim, ray")
    seed: int = Field(0, ge=0, description="determines everything random")
    cell: str = Field("", description="which cell of a matrix this is; set by sfusion", exclude=True)
    cluster: ClusterPart = Field(ClusterPart(), description="nodes and workers")
    tools: dict[str, Any] | list[dict[str, Any]] = Field(
        {}, description="config keys of SandboxFusionTool, or a whole tool config: a list of {class_name, config, ...}"
    )
    sandbox: SandboxPart = Field(SandboxPart(), description="the fake sandbox, its model and its faults")
    load: LoadPart | None = Field(None, description="calls made directly to the tool")
    rollouts: RolloutPart | None = Field(
        None, description="multi-turn rollouts with the fake engine, instead of a load"
    )
    schedule: SchedulePart | None = Field(
        None, description="order of what is ready at the same time (sim only); default: first in, first out"
    )
    events: list[EventPart] = Field(
        [], max_length=1000, description="what happens at given times: kills, pauses, crashes, ..."
    )
    horizon: Seconds = Field(3600.0, description="the run is broken off after this time")
    time_scale: float = Field(1.0, gt=0, le=1, description="factor for the durations of load and events in world ray")
    promises: list[PromisePart] = Field(min_length=1, description="what must hold; see `sfusion explain promises`")

    _written: dict[str, Any] = PrivateAttr(default_factory=dict)
    _places: dict[Path_, str] = PrivateAttr(default_factory=dict)

    @field_validator("scenario")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a name: use lowercase letters, digits, '-', '.' and '_', as in 'slow-start'"
            )
        return value

    @field_validator("worlds")
    @classmethod
    def _once(cls, value: list[World]) -> list[World]:
        if len(set(value)) != len(value):
            raise ValueError(f"each world may occur only once, found {value}")
        return value

    @field_validator("tools")
    @classmethod
    def _tools(cls, value: Any) -> Any:
        if isinstance(value, dict):
            check_tool_keys(value)
        elif not value or not isinstance(value[0].get("class_name"), str):
            raise ValueError("a tool config is a list of {class_name, config, tool_schema}; the first one is called")
        return value

    @model_validator(mode="after")
    def _possible(self) -> Scenario:
        if (self.load is None) == (self.rollouts is None):
            how, where = ("not both", ["rollouts"]) if self.load is not None else ("found neither", [])
            raise Misplaced(f"a scenario has either `load` or `rollouts`, {how}", *where)
        if self.incident and not self.expected.strip():
            raise Misplaced("an incident says what a good stack does: add `expected`", "incident")
        for name in self.sandbox.each:
            if name not in self.sandbox.names:
                text = f"this scenario has no sandbox {name!r}; {near(name, self.sandbox.names)}"
                raise Misplaced(text, "sandbox", "each", name)
        workers = self.cluster.workers
        targets = {*workers, *(f"worker-{n}" for n in range(1, len(workers) + 1))}
        nodes = {f"node-{n}" for n in range(1, self.cluster.nodes + 1)}
        for number, event in enumerate(self.events):
            wrong = event.wrong_target(targets, nodes, self.sandbox.names)
            if event.kind == "cancel" and self.load is None:
                wrong = "cancel: works only with `load`; for rollouts see `rollouts.enough`"
            if wrong is not None:
                raise Misplaced(wrong, "events", number)
        seen: set[str] = set()
        for number, promise in enumerate(self.promises):
            if promise.of_rollouts and self.rollouts is None:
                text = f"{promise.name} is about rollouts, but this scenario has no `rollouts`"
                raise Misplaced(text, "promises", number)
            if promise.name in seen:
                raise Misplaced(f"promise {promise.name} occurs twice; remove one", "promises", number)
            seen.add(promise.name)
        return self

    @classmethod
    def from_data(
        cls, data: dict[str, Any], cell: str = "", place: Callable[[Path_], object] | None = None
    ) -> Scenario:
        """Validate plain data and keep it, so that the cell can be written to a file as it was given.

        ``place`` returns the file and line of a value.
        """
        made = cls.model_validate({**data, "cell": cell})
        made._written = data
        made._places = {path: str(place(path)) for path, _, _ in made.runs()} if place is not None else {}
        return made

    def changed(self, **keys: Any) -> Scenario:
        """Return a copy with other top-level keys."""
        return self.from_data({**self._written, **keys}, self.cell, lambda path: self._places.get(path, ""))

    def named_cell(self, cell: str) -> Scenario:
        """Return a copy that is this cell of a matrix."""
        return self.from_data(self._written, cell, lambda path: self._places.get(path, ""))

    def runs(self) -> Iterator[tuple[Path_, str, str]]:
        """Yield what it runs that is not scripted: the path of the key that says so, what that does, file and line."""
        if self.sandbox.executor == "python":
            path: Path_ = ("sandbox", "executor")
            yield path, "run the code of its programs on this machine", self._places.get(path, "")
        for number, entry in enumerate(self.tools if isinstance(self.tools, list) else []):
            name = entry.get("class_name")
            if not str(name).startswith("sfusion_tools."):
                path = ("tools", number, "class_name")
                yield path, f"import and run the class {name!r:.200}", self._places.get(path, "")

    @property
    def plain(self) -> dict[str, Any]:
        """Return a copy of the data that it was made from, with the secrets of its tools."""
        return copy.deepcopy({**self._written, "seed": self.seed})

    @property
    def written(self) -> dict[str, Any]:
        """Return the cell as plain data, without matrix, extends and the secrets of its tools."""
        data = {**self._written, "seed": self.seed}
        return {**data, "tools": masked(data["tools"])} if "tools" in data else data

    @property
    def title(self) -> str:
        return f"{self.scenario}[{self.cell}]" if self.cell else self.scenario

    @property
    def own_config(self) -> dict[str, Any] | None:
        """Return the config of SandboxFusionTool; None if the tool is another class."""
        if isinstance(self.tools, dict):
            return self.tools
        first = self.tools[0]
        if not is_own(first):
            return None
        return {key: value for key, value in (first.get("config") or {}).items() if key not in _REPLACED}

    @property
    def secrets(self) -> dict[str, str]:
        """Return the secrets in the tools' config, by the name of their key."""
        if isinstance(self.tools, dict):
            return secrets_in(self.tools)
        return {name: text for entry in self.tools for name, text in secrets_in(entry.get("config") or {}).items()}

    @property
    def stated_limit(self) -> int | None:
        """Return the tool's rate_limit, also of other classes; None if it has none."""
        if self.settings is not None:
            return self.settings.rate_limit if self.settings.enable_global_rate_limit else None
        assert isinstance(self.tools, list)
        config = self.tools[0].get("config") or {}
        limit = config.get("rate_limit")
        return limit if isinstance(limit, int) and config.get("enable_global_rate_limit", True) else None

    @property
    def default_timeout(self) -> float:
        """Return the timeout of programs that do not state one; of another class what its config says, or 30 s."""
        if self.settings is not None:
            return float(self.settings.default_timeout)
        assert isinstance(self.tools, list)
        stated = (self.tools[0].get("config") or {}).get("default_timeout")
        return float(stated) if isinstance(stated, int | float) and stated > 0 else 30.0

    @cached_property
    def settings(self) -> Any:
        """Return the settings of SandboxFusionTool; None if the tool is another class."""
        from sfusion_tools.sandbox.config import SandboxToolConfig

        if self.own_config is None:
            return None
        return SandboxToolConfig.model_validate({"sandbox_fusion_url": "http://127.0.0.1:8080", **self.own_config})


def is_own(entry: dict[str, Any]) -> bool:
    """Is the class of a tool config's entry our own?"""
    return entry.get("class_name") in OWN_CLASSES


def check_tool_keys(config: dict[str, Any]) -> None:
    """Check a mapping of tool keys against the tool's own model."""
    from sfusion_tools.errors import ConfigError
    from sfusion_tools.sandbox.config import SandboxToolConfig

    for key, why in _REPLACED.items():
        if key in config:
            raise ValueError(f"{key} cannot be set in a scenario: {why}")
    try:
        SandboxToolConfig.read({"sandbox_fusion_url": "http://127.0.0.1:8080", **config}, "tools")
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("tools: ")) from None
