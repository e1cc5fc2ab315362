"""The model of scenario files. `sfusion explain`, the JSON Schema and the docs show the
descriptions of its fields.

What a hunt draws for a field, and what a shrinker tries, is declared with it: see
``fakes/fields.py``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from sfusion_tools.errors import near
from sfusion_tools.marked_yaml import Path_

from ....fakes.faults import Seconds
from ....fakes.fields import Drawn, NotHunted, NotShrunk, Reduced
from ....fakes.sandbox.protocol import short_digest
from ..promises import Promise, read_promise
from .base import Data, Misplaced, ScenarioPart
from .drawing import Drawing
from .episodes import EpisodesPart
from .events import EventPart, draw_events
from .parts import SEEDS, ClusterPart, LoadPart, ObservedPart, SandboxPart, SchedulePart
from .program import ProgramPart
from .rollouts import RolloutPart
from .tools import (
    REPLACED,
    check_tool_keys,
    draw_tools,
    is_own,
    masked,
    secrets_in,
    simpler_tools,
    with_canaries,
)
from .training import TrainingPart

Listed = Literal["sim", "ray"]
"""A world that a file lists."""
World = Literal["sim", "wall", "ray"]
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VERLS_TIMEOUT = 30.0
"""Seconds: the default of ``default_timeout`` in verl's original design."""
_REPORT = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+)#([1-9][0-9]*)")

_WORK = ("load", "rollouts", "training", "episodes")
"""What a scenario may have to do."""
_OF_EPISODES = ("cancel", "crash", "kill", "restart", "wedge")
"""The events that may happen to episodes."""
_MEANT = "write owner/repository#number, as in volcengine/verl#1234"


def name_problem(name: str) -> str:
    """Return why a scenario cannot have this name; empty if it can."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"{name!r} is not a name: use lowercase letters, digits, '-', '.' and '_', as in "
        "'slow-start'"
    )


def _reports(value: Any) -> Any:
    reports = value
    if isinstance(value, str):
        reports = [part.strip() for part in value.split(",")]
    if not isinstance(reports, list | tuple) or not reports:
        raise ValueError(f"{value!r} is not a report; {_MEANT}")
    for report in reports:
        if not isinstance(report, str) or not _REPORT.fullmatch(report):
            raise ValueError(f"{report!r} is not a report; {_MEANT}")
    if len(set(reports)) != len(reports):
        raise ValueError("each report may occur only once")
    return tuple(reports)


Incident = Annotated[tuple[str, ...], BeforeValidator(_reports)]
"""One or several reports: a text, separated by commas, or a list."""


def _simpler_promise(promise: Any) -> Iterator[Any]:
    """Promise amounts instead of numbers of outcomes, which are those of the old size."""
    amounts = promise.get("outcomes") if isinstance(promise, dict) else None
    if not isinstance(amounts, dict):
        return
    for name, amount in amounts.items():
        if amount not in ("all", "some"):
            yield {"outcomes": {**amounts, name: "all"}}
            yield {"outcomes": {**amounts, name: "some"}}
            others = {outcome: value for outcome, value in amounts.items() if outcome != name}
            yield {"outcomes": others}


PromisePart = Annotated[
    SerializeAsAny[Promise], BeforeValidator(read_promise), Reduced(how=_simpler_promise)
]


def _instead_of_a_load(drawing: Drawing, scenario: Data) -> Data | None:
    return None if "load" in scenario else drawing.part(RolloutPart)


_REMARK = NotHunted("does nothing")
_TITLE = NotShrunk("names the scenario")


class Scenario(ScenarioPart):
    """A scenario: where it runs, which load and faults it has, and which promises must hold."""

    scenario: Annotated[str, _REMARK, _TITLE] = Field(
        description="name: lowercase letters, digits, - . _"
    )
    about: Annotated[str, _REMARK, _TITLE] = Field(
        min_length=1, description="what is tested and what is expected"
    )
    incident: Annotated[Incident, _REMARK] = Field(
        (),
        description="where this failure was reported: owner/repository#number, or several of them",
    )
    expected: Annotated[str, _REMARK] = Field(
        "", description="what a good stack does; required with `incident`"
    )
    worlds: Annotated[list[Listed], NotHunted("hunts play in sim")] = Field(
        ["sim"], min_length=1, description="where it can run: sim, ray"
    )
    seed: Annotated[int, Drawn(SEEDS), NotShrunk("another seed is another run")] = Field(
        0, ge=0, description="determines everything random"
    )
    cell: Annotated[str, _REMARK, _TITLE] = Field(
        "", description="which cell of a matrix this is; set by sfusion", exclude=True
    )
    cluster: Annotated[ClusterPart, Drawn()] = Field(ClusterPart(), description="nodes and workers")
    tools: Annotated[
        Data | list[Data], Drawn(how=draw_tools), Reduced(how=simpler_tools, kept=True)
    ] = Field(
        {},
        description=(
            "config keys of SandboxFusionTool, or a whole tool config: a list of "
            "{class_name, config, ...}"
        ),
    )
    sandbox: Annotated[SandboxPart, Drawn()] = Field(
        SandboxPart(), description="the fake sandbox, its model and its faults"
    )
    load: Annotated[LoadPart | None, Drawn(share=0.8)] = Field(
        None, description="calls made directly to the tool"
    )
    rollouts: Annotated[RolloutPart | None, Drawn(how=_instead_of_a_load)] = Field(
        None, description="multi-turn rollouts with the fake engine, instead of a load"
    )
    training: Annotated[TrainingPart | None, NotHunted("a training takes too long for a hunt")] = (
        Field(
            None,
            description=(
                "a toy training through rollouts (sim only), instead of a load; see `sfusion train`"
            ),
        )
    )
    episodes: Annotated[
        EpisodesPart | None, NotHunted("a hunt judges our own tool, which has no episodes")
    ] = Field(
        None,
        description=(
            "episodes in sandboxes that live and die (`sandbox.face`), instead of a load; see "
            "docs/lifecycle.md"
        ),
    )
    schedule: Annotated[SchedulePart | None, Drawn(when="schedule")] = Field(
        None,
        description=(
            "order of what is ready at the same time (sim only); default: first in, first out"
        ),
    )
    events: Annotated[list[EventPart], Drawn(how=draw_events)] = Field(
        [], max_length=1000, description="what happens at given times: kills, pauses, crashes, ..."
    )
    observed: Annotated[ObservedPart | None, _REMARK] = Field(
        None,
        description=(
            "what the log showed that it was learned from; `sfusion sweep` "
            "recommends nothing beyond it"
        ),
    )
    horizon: Annotated[Seconds, NotHunted("follows from the rest of a case")] = Field(
        3600.0, description="the run is broken off after this time"
    )
    time_scale: Annotated[float, NotHunted("only for world ray")] = Field(
        1.0, gt=0, le=1, description="factor for the durations of load and events in world ray"
    )
    promises: Annotated[
        list[PromisePart], NotHunted("follow from the rest of a case"), Reduced(kept=True)
    ] = Field(
        [],
        description="what must hold beside what holds in every run; see `sfusion explain promises`",
    )

    _written: Data = PrivateAttr(default_factory=dict)
    _places: dict[Path_, str] = PrivateAttr(default_factory=dict)

    @field_validator("scenario")
    @classmethod
    def _named(cls, value: str) -> str:
        if problem := name_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("worlds")
    @classmethod
    def _once(cls, value: list[Listed]) -> list[Listed]:
        if len(set(value)) != len(value):
            raise ValueError(f"each world may occur only once, found {value}")
        return value

    @field_validator("tools")
    @classmethod
    def _tools(cls, value: Any) -> Any:
        if isinstance(value, dict):
            check_tool_keys(value)
        elif not value or not isinstance(value[0].get("class_name"), str):
            raise ValueError(
                "a tool config is a list of {class_name, config, tool_schema}; the first "
                "one is called"
            )
        return value

    @model_validator(mode="after")
    def _possible(self) -> Scenario:
        self._check_work()
        self._check_max_timeout()
        if self.incident and not self.expected.strip():
            raise Misplaced("an incident says what a good stack does: add `expected`", "incident")
        self._check_sandboxes()
        self._check_events()
        self._check_promises()
        return self

    def _check_work(self) -> None:
        """Raise Misplaced unless the scenario has one thing to do, and can do it in its worlds."""
        given = [key for key in _WORK if getattr(self, key) is not None]
        wanted = "a scenario has one of `load`, `rollouts`, `training` and `episodes`"
        if not given:
            raise Misplaced(f"{wanted}; found none of them")
        if len(given) > 1:
            raise Misplaced(f"{wanted}; found {' and '.join(given)}", given[1])
        if self.training is not None and "ray" in self.worlds:
            raise Misplaced("a `training` runs in virtual time only: leave out world ray", "worlds")
        self._check_episodes()

    def _check_episodes(self) -> None:
        """Raise Misplaced unless episodes and a face come together."""
        has_face = self.sandbox.face is not None
        if has_face and self.episodes is None:
            raise Misplaced("a `face` is for `episodes`, which this scenario has not", "sandbox")
        if self.episodes is None:
            return
        if not has_face:
            text = "`episodes` need `sandbox: {face: daytona}` (or openenv, e2b)"
            raise Misplaced(text, "episodes")
        if "ray" in self.worlds:
            raise Misplaced("`episodes` run in sim and wall: leave out world ray", "worlds")
        if isinstance(self.tools, dict) and self.tools:
            text = "tools: `episodes` are played by a client of their own, given with --tools"
            raise Misplaced(text, "tools")
        if self.sandbox.instances > 1:
            raise Misplaced("`episodes` use one service: leave out `instances`", "sandbox")
        if self.schedule is not None:
            raise Misplaced("`episodes` have no `schedule`", "schedule")

    def _check_max_timeout(self) -> None:
        config = self.own_config or {}
        if "max_timeout" in config and self.setting("max_timeout") < self.default_timeout:
            raise Misplaced(
                f"max_timeout {config['max_timeout']} is below default_timeout "
                f"({self.default_timeout:g}), which counts then; raise it or leave it out",
                *self._tool_path("max_timeout"),
            )

    def _check_sandboxes(self) -> None:
        for name in self.sandbox.each:
            if name not in self.sandbox.names:
                text = f"this scenario has no sandbox {name!r}; {near(name, self.sandbox.names)}"
                raise Misplaced(text, "sandbox", "each", name)

    def _check_events(self) -> None:
        workers = self.cluster.workers
        targets = {*workers, *(f"worker-{n}" for n in range(1, len(workers) + 1))}
        nodes = {f"node-{n}" for n in range(1, self.cluster.nodes + 1)}
        for number, event in enumerate(self.events):
            wrong = event.wrong_target(targets, nodes, self.sandbox.names)
            if self.episodes is not None:
                if event.kind not in _OF_EPISODES:
                    wrong = f"{event.kind}: episodes know only {', '.join(_OF_EPISODES)}"
                elif event.kind == "kill" and event.target in ("limiter", "driver"):
                    wrong = f"kill: episodes have workers and nodes, but no {event.target}"
            elif event.kind == "cancel" and self.load is None:
                wrong = "cancel: works only with `load`; for rollouts see `rollouts.enough`"
            if event.kind == "clock_jump" and not self.has_single_calls:
                wrong = "clock_jump: works only with `load.each`"
            if wrong is not None:
                raise Misplaced(wrong, "events", number)

    def _check_promises(self) -> None:
        seen: set[str] = set()
        for number, promise in enumerate(self.promises):
            why = self._why_no_promise(promise)
            if why is None and promise.name in seen:
                why = f"promise {promise.name} occurs twice; remove one"
            if why is not None:
                raise Misplaced(why, "promises", number)
            seen.add(promise.name)

    def _why_no_promise(self, promise: Promise) -> str | None:
        """Say why this scenario cannot make a promise; None if it can."""
        if self.training is None:
            if promise.of_training:
                return (
                    f"{promise.name} is about what is learned, but this scenario has no `training`"
                )
        else:
            why = promise.cannot_fail(self.training)
            if why:
                return f"{promise.name} cannot fail: {why}"
        if self.episodes is None and promise.of_episodes:
            return f"{promise.name} is about episodes, but this scenario has no `episodes`"
        if self.episodes is not None and not promise.judges_episodes:
            return f"{promise.name} is not about episodes, and this scenario has nothing else"
        if promise.of_rollouts and self.load is not None:
            return f"{promise.name} is about rollouts, but this scenario has no `rollouts`"
        if promise.name == "outcomes" and self.has_single_calls:
            return "outcomes: single calls say how each must end (`end`), which is judged anyway"
        return None

    def _tool_path(self, key: str) -> Path_:
        return ("tools", key) if isinstance(self.tools, dict) else ("tools", 0, "config", key)

    @classmethod
    def from_data(
        cls, data: Data, cell: str = "", place: Callable[[Path_], object] | None = None
    ) -> Scenario:
        """Validate plain data and keep it, so that the cell can be written to a file as it was
        given.

        ``place`` returns the file and line of a value.
        """
        made = cls.model_validate({**with_canaries(data), "cell": cell})
        made._written = data
        if place is not None:
            made._places = {path: str(place(path)) for path, _, _ in made.runs()}
        return made

    def changed(self, *, cell: str | None = None, **keys: Any) -> Scenario:
        """Return a copy with other top-level keys, or that is another cell of a matrix."""
        return self.from_data(
            {**self._written, **keys},
            cell=self.cell if cell is None else cell,
            place=lambda path: self._places.get(path, ""),
        )

    def runs(self) -> Iterator[tuple[Path_, str, str]]:
        """Yield what it runs that is not scripted: the path of the key that says so, what that
        does, file and line."""
        if self.sandbox.executor == "python":
            path: Path_ = ("sandbox", "executor")
            yield path, "run the code of its programs on this machine", self._places.get(path, "")
        for number, entry in enumerate(self.tools if isinstance(self.tools, list) else []):
            name = entry.get("class_name")
            if not str(name).startswith("sfusion_tools."):
                path = ("tools", number, "class_name")
                yield path, f"import and run the class {name!r:.200}", self._places.get(path, "")

    @property
    def plain(self) -> Data:
        """Return a copy of the data that it was made from, with the secrets of its tools."""
        return copy.deepcopy({**self._written, "seed": self.seed})

    @property
    def written(self) -> Data:
        """Return the cell as plain data, without matrix, extends and the secrets of its tools."""
        data = {**self._written, "seed": self.seed}
        if "tools" in data:
            data["tools"] = masked(data["tools"])
        return data

    @property
    def has_single_calls(self) -> bool:
        """Does it list its calls one by one?"""
        return self.load is not None and bool(self.load.each)

    @property
    def stated_config(self) -> Data:
        """Return the settings of the tool as the file has them, canaries not written out."""
        stated = self._written.get("tools") or {}
        return stated if isinstance(stated, dict) else dict(stated[0].get("config") or {})

    @property
    def title(self) -> str:
        return f"{self.scenario}[{self.cell}]" if self.cell else self.scenario

    @property
    def own_config(self) -> Data | None:
        """Return the config of SandboxFusionTool; None if the tool is another class."""
        if isinstance(self.tools, dict):
            return self.tools
        first = self.tools[0]
        if not is_own(first):
            return None
        config = first.get("config") or {}
        return {key: value for key, value in config.items() if key not in REPLACED}

    @property
    def secrets(self) -> dict[str, str]:
        """Return the secrets in the tools' config, by the name of their key."""
        if isinstance(self.tools, dict):
            return secrets_in(self.tools)
        secrets: dict[str, str] = {}
        for entry in self.tools:
            secrets |= secrets_in(entry.get("config") or {})
        return secrets

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that the tool is configured to send."""
        stated = self.setting("headers")
        if not isinstance(stated, dict):
            return {}
        return {str(name): str(value) for name, value in stated.items()}

    @cached_property
    def asks(self) -> Data:
        """Return the fields of every request of the tool whose call does not say otherwise, as its
        config has them."""
        given = {
            "language": self.setting("default_language"),
            "run_timeout": self.setting("default_timeout"),
            "compile_timeout": self.setting("compile_timeout"),
            "memory_limit_MB": self.setting("memory_limit_mb"),
        }
        return {key: value for key, value in given.items() if isinstance(value, str | int | float)}

    def asked(self, arguments: Any) -> Data | None:
        """Return what a call with these arguments asks for beside ``asks``.

        A field that is not known is None. For arguments that no tool can use, all of it is None.
        """
        code = arguments.get("code") if isinstance(arguments, dict) else None
        if not isinstance(code, str):
            return None
        found: Data = {"code": short_digest(code)}
        if "language" in arguments:
            language = arguments["language"] if self._offers("language") else None
            if language != self.asks.get("language"):
                found["language"] = language
        if "timeout" in arguments:
            found["run_timeout"] = self._seconds_asked(arguments["timeout"])
        return found

    def _seconds_asked(self, timeout: Any) -> float | None:
        """Return how long a program may run if its call asks for this; None: not known."""
        longest = max(self.setting("max_timeout") or 0, self.asks.get("run_timeout", 0))
        if not longest or not self._offers("timeout") or not isinstance(timeout, int | float):
            return None
        seconds: float = min(timeout, longest)
        return seconds

    def _offers(self, parameter: str) -> bool:
        """Can a model set this parameter of the tool?"""
        if self.own_config is not None:
            return True
        assert isinstance(self.tools, list)
        return f"'{parameter}'" in str(self.tools[0].get("tool_schema"))

    @property
    def pace(self) -> list[float] | None:
        """Return the requests per second of the tool and how many may start at once; None if it has
        no such limit."""
        rate = self.setting("requests_per_second")
        if not isinstance(rate, int | float) or not rate:
            return None
        burst = self.setting("requests_burst") or max(1, int(rate))
        return [float(rate), float(burst)]

    @property
    def stated_limit(self) -> int | None:
        """Return the tool's rate_limit, also of other classes; None if it has none."""
        limit = self.setting("rate_limit")
        enabled = self.setting("enable_global_rate_limit")
        if not isinstance(limit, int) or (enabled is not None and not enabled):
            return None
        return limit

    @property
    def default_timeout(self) -> float:
        """Return the timeout of programs that do not state one; of another class what its config
        says, or 30 s."""
        stated = self.setting("default_timeout")
        if isinstance(stated, int | float) and stated > 0:
            return float(stated)
        return _VERLS_TIMEOUT

    def setting(self, key: str) -> Any:
        """Return a setting of the tool; of another class what its config says, or None."""
        if self.settings is not None:
            return getattr(self.settings, key, None)
        assert isinstance(self.tools, list)
        return (self.tools[0].get("config") or {}).get(key)

    @cached_property
    def settings(self) -> Any:
        """Return the settings of SandboxFusionTool; None if the tool is another class."""
        from sfusion_tools.sandbox.config import SandboxToolConfig

        if self.own_config is None:
            return None
        return SandboxToolConfig.model_validate(
            {"sandbox_fusion_url": "http://127.0.0.1:8080", **self.own_config}
        )

    @property
    def programs(self) -> list[ProgramPart]:
        """Return every program that the load or a rollout may run."""
        if self.load is not None:
            return self.load.program
        programs: list[ProgramPart] = []
        if self.rollouts is not None:
            for turn in self.rollouts.turns:
                programs += turn.programs
        return programs

    def not_for(self, world: World) -> str | None:
        """Return why this scenario cannot run in a world; None if it can.

        What runs in sim runs in wall, with few exceptions.
        """
        if self.episodes is not None:
            return "episodes run in sim and wall" if world == "ray" else None
        if world != "wall":
            return None if world in self.worlds else f"not for world {world}"
        if "sim" not in self.worlds:
            return "not for world wall: its file does not list sim"
        if self.schedule is not None:
            return "a schedule needs world sim"
        ends_calls = any(event.kind in ("kill", "cancel") for event in self.events)
        if self.own_config is None and ends_calls:
            return "a thread of another tool cannot be killed; world ray kills processes"
        return None

    @property
    def needs_fake(self) -> str | None:
        """Return why this scenario needs the fake sandbox; None if a real one will do."""
        if self.episodes is not None:
            return "its sandboxes live and die"
        if self.has_single_calls:
            return "it lists single calls, each with what the sandbox does"
        models = [part.model for part in self.sandbox.settings]
        slowing = []
        for name in ("cores", "spawn_cost"):
            if any(getattr(model, name) for model in models):
                slowing.append(name)
        if slowing:
            return f"a real server cannot be told how to slow down ({', '.join(slowing)})"
        language = self.settings.default_language if self.settings is not None else "python"
        for program in self.programs:
            reason = program.needs_fake(language)
            if reason is not None:
                return reason
        return None

    def with_real_programs(self) -> Scenario:
        """Return the scenario with programs that really run."""

        def real(programs: list[ProgramPart]) -> list[ProgramPart]:
            return [part.model_copy(update={"real": True}) for part in programs]

        if self.load is not None:
            load = self.load.model_copy(update={"program": real(self.load.program)})
            return self.model_copy(update={"load": load})
        if self.rollouts is None:  # the programs of a training always run
            return self
        turns = [
            turn.model_copy(update={"programs": real(turn.programs)})
            for turn in self.rollouts.turns
        ]
        return self.model_copy(
            update={"rollouts": self.rollouts.model_copy(update={"turns": turns})}
        )
