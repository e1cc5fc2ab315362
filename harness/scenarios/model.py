"""The scenario: load, faults and promises in one file. The descriptions here are what `sfusion explain` prints."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, SerializeAsAny, field_validator, model_validator

from sfusion.fakes.errors import SandboxSetupError
from sfusion.fakes.faults import Distribution, Rule, Seconds
from sfusion.fakes.sandbox.models import Queue, Quota, Unbounded, read_model
from sfusion.fakes.sandbox.profile import Profile
from sfusion.harness.promises import Promise, read_promise
from sfusion.harness.scenarios.base import Misplaced, ScenarioPart
from sfusion.harness.scenarios.events import EventPart
from sfusion.harness.scenarios.program import ProgramPart
from sfusion.harness.scenarios.rollouts import RolloutPart
from sfusion.harness.scenarios.secrets import masked, secrets_in

World = Literal["sim", "ray"]
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
OWN_CLASSES = (
    "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
    "sfusion_tools.sandbox.tool.SandboxFusionTool",
)
_REPLACED = {"sandbox_fusion_url": "the world gives the address", "limiter": "the world brings the limiter"}


def _model(value: Any) -> Any:
    try:
        return read_model(value)
    except SandboxSetupError as error:
        raise ValueError(str(error)) from None


def _several(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


ModelPart = Annotated[Unbounded | Queue | Quota, BeforeValidator(_model)]
Programs = Annotated[list[ProgramPart], BeforeValidator(_several), Field(min_length=1)]
PromisePart = Annotated[SerializeAsAny[Promise], BeforeValidator(read_promise)]


class LinkPart(ScenarioPart):
    """The way between workers and limiter."""

    delay: Distribution = Field(
        Distribution(numbers=(0.001,)), description="how long a message takes, each way (sim only)"
    )
    loss: float = Field(0.0, ge=0, lt=1, description="share of messages that are lost (sim only)")


class ClusterPart(ScenarioPart):
    """How many processes share the limiter."""

    nodes: int = Field(1, ge=1, le=1000, description="machines; node-1, node-2, ...")
    workers_per_node: int = Field(1, ge=1, le=1000, description="processes on each; n1-w1, n1-w2, ..., n2-w1, ...")
    link: LinkPart = Field(LinkPart(), description="messages between workers and limiter")

    @property
    def workers(self) -> list[str]:
        """The names of all workers, in order."""
        return [f"n{n}-w{w}" for n in range(1, self.nodes + 1) for w in range(1, self.workers_per_node + 1)]


class SandboxPart(ScenarioPart):
    """The fake sandbox."""

    model: ModelPart = Field(
        Unbounded(), description="behaviour under load: unbounded, {quota: 8}, {queue: 32}, with cores, spawn_cost, ..."
    )
    faults: list[Rule] = Field([], description="fault rules: when x what x phase; see `sfusion explain faults`")
    executor: Literal["scripted", "python"] = Field(
        "scripted", description="scripted runs nothing; python really runs code and stops the virtual clock"
    )
    profile: Profile = Field("2026-07", description="which real server: 2026-07, or 2025-06 (the published image)")
    instances: int = Field(1, ge=1, le=64, description="sandboxes that share the load; faults strike each by itself")


class CancelPart(ScenarioPart):
    """Callers that give up."""

    share: float = Field(1.0, ge=0, le=1, description="share of the calls, drawn by the call's id")
    after: Distribution = Field(description="how long after its start a call is cancelled")


class LoadPart(ScenarioPart):
    """Calls made straight to the tool, as many rollouts at once would make them."""

    calls: int = Field(100, ge=1, le=1_000_000, description="calls in all: c0001, c0002, ...")
    concurrency: int = Field(16, ge=1, le=100_000, description="callers, spread over the workers; each calls in turn")
    program: Programs = Field(
        [ProgramPart()], alias="program", description="what each call runs; a list is drawn from by `share`"
    )
    think: Distribution = Field(Distribution(numbers=(0.0,)), description="pause of a caller between its calls")
    cancel: CancelPart | None = Field(None, description="calls that their callers give up")


class Scenario(ScenarioPart):
    """A scenario file."""

    scenario: str = Field(description="its name: small letters, digits, - . _")
    about: str = Field(min_length=1, description="what is tried and what must come out, for a person")
    incident: str | None = Field(None, description="where somebody met this failure")
    worlds: list[World] = Field(["sim"], min_length=1, description="where it can run: sim, ray")
    seed: int = Field(0, ge=0, description="everything that looks like chance follows from it")
    cell: str = Field("", description="which cell of a matrix this is; set by sfusion", exclude=True)
    cluster: ClusterPart = Field(ClusterPart(), description="nodes and workers")
    tools: dict[str, Any] | list[dict[str, Any]] = Field(
        {}, description="config keys of SandboxFusionTool, or a whole tool config: a list of {class_name, config, ...}"
    )
    sandbox: SandboxPart = Field(SandboxPart(), description="the fake sandbox, its model and its faults")
    load: LoadPart | None = Field(None, description="calls made straight to the tool")
    rollouts: RolloutPart | None = Field(None, description="multi-turn rollouts with the fake engine, instead of load")
    events: list[EventPart] = Field([], description="what happens at given times: kills, pauses, crashes, resizing")
    horizon: Seconds = Field(3600.0, description="the run is broken off after this time; what is unfinished shows then")
    time_scale: float = Field(
        1.0, gt=0, le=1, description="in world ray, durations of load and events are multiplied by this"
    )
    promises: list[PromisePart] = Field(min_length=1, description="what must hold; see `sfusion explain promises`")

    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("scenario")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a name: use small letters, digits, '-', '.' and '_', as in 'slow-start'"
            )
        return value

    @field_validator("worlds")
    @classmethod
    def _once(cls, value: list[World]) -> list[World]:
        if len(set(value)) != len(value):
            raise ValueError(f"each world once, found {value}")
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
            how, where = ("not both", ["rollouts"]) if self.load is not None else ("give one", [])
            raise Misplaced(f"a scenario has either `load` or `rollouts`, {how}", *where)
        workers = self.cluster.workers
        for number, event in enumerate(self.events):
            wrong = event.wrong_target(workers, self.cluster.nodes, self.sandbox.instances)
            if event.target == "driver" and "sim" in self.worlds:
                wrong = "kill: world sim has no driver to kill; say worlds: [ray]"
            if event.kind == "cancel" and self.load is None:
                wrong = "cancel: only calls of a `load` can be cancelled; for rollouts see `rollouts.enough`"
            if wrong is not None:
                raise Misplaced(wrong, "events", number)
        seen: set[str] = set()
        for number, promise in enumerate(self.promises):
            if promise.of_rollouts and self.rollouts is None:
                text = f"{promise.name} is about rollouts, and this scenario has none: use `rollouts`"
                raise Misplaced(text, "promises", number)
            if promise.name in seen:
                raise Misplaced(f"promise {promise.name} stands here twice; remove one", "promises", number)
            seen.add(promise.name)
        return self

    @classmethod
    def from_data(cls, data: dict[str, Any], cell: str = "") -> Scenario:
        """Validate plain data and keep it, so that the cell can be written down as it was given."""
        made = cls.model_validate({**data, "cell": cell})
        made._written = data
        return made

    def changed(self, **keys: Any) -> Scenario:
        """The same with other top-level keys."""
        return self.from_data({**self._written, **keys}, self.cell)

    @property
    def written(self) -> dict[str, Any]:
        """The cell as plain data, without matrix, extends and the secrets of its tools."""
        data = {**self._written, "seed": self.seed}
        return {**data, "tools": masked(data["tools"])} if "tools" in data else data

    @property
    def title(self) -> str:
        """Name and cell."""
        return f"{self.scenario}[{self.cell}]" if self.cell else self.scenario

    @property
    def own_config(self) -> dict[str, Any] | None:
        """The config of SandboxFusionTool when that is the tool; None for other people's."""
        if isinstance(self.tools, dict):
            return self.tools
        first = self.tools[0]
        if first.get("class_name") not in OWN_CLASSES:
            return None
        return {key: value for key, value in (first.get("config") or {}).items() if key not in _REPLACED}

    @property
    def secrets(self) -> dict[str, str]:
        """What of the tools' config must reach nobody, by the name of its key."""
        if isinstance(self.tools, dict):
            return secrets_in(self.tools)
        return {name: text for entry in self.tools for name, text in secrets_in(entry.get("config") or {}).items()}

    @property
    def stated_limit(self) -> int | None:
        """The rate_limit that the tool is set to, ours or other people's."""
        if self.settings is not None:
            return self.settings.rate_limit if self.settings.enable_global_rate_limit else None
        assert isinstance(self.tools, list)
        limit = (self.tools[0].get("config") or {}).get("rate_limit")
        return limit if isinstance(limit, int) else None

    @property
    def default_timeout(self) -> float:
        """The timeout of programs that have none; 30 s for other people's tools, which do not say."""
        return self.settings.default_timeout if self.settings is not None else 30.0

    @cached_property
    def settings(self) -> Any:
        """The tool's settings when the tool is our own; None for other people's."""
        from sfusion_tools.sandbox.config import SandboxToolConfig

        if self.own_config is None:
            return None
        return SandboxToolConfig.model_validate({"sandbox_fusion_url": "http://127.0.0.1:8080", **self.own_config})


def check_tool_keys(config: dict[str, Any]) -> None:
    """Hold a mapping of tool keys to the tool's own model."""
    from sfusion_tools.errors import ConfigError
    from sfusion_tools.sandbox.config import SandboxToolConfig

    for key, why in _REPLACED.items():
        if key in config:
            raise ValueError(f"{key} cannot be set in a scenario: {why}")
    try:
        SandboxToolConfig.read({"sandbox_fusion_url": "http://127.0.0.1:8080", **config}, "tools")
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("tools: ")) from None
