"""Events: what is done to the cluster and the sandbox at given times or points of the journal."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sfusion_tools.errors import near
from sfusion_tools.record import ENDINGS

from ....fakes.faults import Seconds
from ....fakes.fields import Drawn, NotHunted, NotShrunk, Reduced
from ...core.journal import Event
from .base import Data, ScenarioPart, declared
from .drawing import Drawing

KINDS = (
    *("kill", "pause", "cut_off", "restart", "crash", "wedge", "resize", "cancel"),
    "clock_jump",
)
_EVENT = NotShrunk("it is the event itself")


_COUNTED = {
    "grants": [("client", "permit_granted")],
    "arrivals": [("server", "arrived")],
    "in_flight": [("server", "arrived")],
    "ended": [("world", ending) for ending in ENDINGS],
}
"""The events that count towards a point of the journal."""


class PointPart(ScenarioPart):
    """A point of the journal, reached when one count reaches a number: grants, arrivals, in_flight
    or ended."""

    grants: int | None = Field(None, ge=1, description="permits that callers were granted")
    arrivals: int | None = Field(None, ge=1, description="requests that arrived at the sandboxes")
    in_flight: int | None = Field(
        None, ge=1, description="requests that a sandbox was handling at once"
    )
    ended: int | None = Field(None, ge=1, description="calls that ended, in whatever way")

    @model_validator(mode="after")
    def _one(self) -> PointPart:
        if len(self._given) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(
                f"a point of the journal is exactly one of {names}; found {len(self._given)}"
            )
        return self

    @property
    def _given(self) -> list[tuple[str, int]]:
        return [(name, number) for name, number in self if number is not None]

    @property
    def number(self) -> int:
        return self._given[0][1]

    def __str__(self) -> str:
        name, number = self._given[0]
        return f"{name.replace('_', ' ')} {number}"

    def count(self, so_far: int, event: Event) -> int:
        """Return the count after one more event of the journal."""
        what = self._given[0][0]
        if (event["source"], event["event"]) not in _COUNTED[what]:
            return so_far
        return max(so_far, int(event["in_flight"])) if what == "in_flight" else so_far + 1


def _a_worker(drawing: Drawing, _: Data) -> str:
    cluster = drawing.data.get("cluster", {})
    node = drawing.random.randint(1, cluster.get("nodes", 1))
    worker = drawing.random.randint(1, cluster.get("workers_per_node", 1))
    return f"n{node}-w{worker}"


def _a_victim(drawing: Drawing, _: Data) -> str:
    worker = _a_worker(drawing, _)
    node = worker.partition("-")[0].replace("n", "node-")
    return str(drawing.one(worker, worker, node, "limiter"))


def _a_sandbox(drawing: Drawing, _: Data) -> str:
    count = drawing.data.get("sandbox", {}).get("instances", 1)
    names = [f"sandbox-{number}" for number in range(1, count + 1)]
    return str(drawing.one("sandbox", *names))


def _draw_point(drawing: Drawing, _: Data) -> Data:
    return {drawing.one(*PointPart.model_fields): drawing.random.randint(1, 12)}


class EventPart(ScenarioPart):
    """One event: `at` or `after`, and exactly one of kill, pause, cut_off, restart, crash, wedge,
    resize, cancel, clock_jump."""

    at: Annotated[
        Seconds, Drawn(0, 0.011, 0.109, 0.313, 0.907, 2.003, 5.023), Reduced(scales=True)
    ] = Field(
        0.0,
        description="when it happens, after the start of the load or after the point of `after`",
    )
    after: Annotated[PointPart | None, Drawn(how=_draw_point, share=0.15)] = Field(
        None,
        description=(
            "the point of the journal at which it happens: {grants: 17}, {in_flight: 5}, ..."
        ),
    )
    kill: Annotated[str | None, Drawn(how=_a_victim)] = Field(
        None,
        description=(
            "kill without warning: worker-2 or n1-w2, node-1, limiter, or driver "
            "(with all its workers)"
        ),
    )
    pause: Annotated[str | None, Drawn(how=_a_worker)] = Field(
        None,
        description=(
            "stop a worker, all workers of a node, or the limiter for `seconds`, "
            "then let it continue"
        ),
    )
    cut_off: Annotated[str | None, Drawn(how=_a_worker)] = Field(
        None, description="cut a worker off from the limiter for `seconds`; it keeps working"
    )
    restart: Annotated[Literal["limiter", "sandbox"] | None, Drawn(), _EVENT] = Field(
        None, description="restart after a kill or crash: limiter or sandbox"
    )
    crash: Annotated[str | None, Drawn(how=_a_sandbox), _EVENT] = Field(
        None, description="crash the sandbox: sandbox (all of them) or sandbox-2"
    )
    wedge: Annotated[str | None, Drawn(how=_a_sandbox), _EVENT] = Field(
        None,
        description="the sandbox accepts requests but never answers, for `seconds` or for good",
    )
    resize: Annotated[int | None, Drawn(1, 2, 5, 20), Reduced(scales=True)] = Field(
        None, ge=1, description="change the limiter's rate_limit"
    )
    cancel: Annotated[
        float | None, Drawn(0.3, 1.0), Reduced(how=lambda share: [1.0] if share != 1 else [])
    ] = Field(None, gt=0, le=1, description="cancel this share of the calls under way")
    clock_jump: Annotated[float | None, NotHunted("only for `load.each`"), _EVENT] = Field(
        None, description="the wall clock jumps by that many seconds; only with `load.each`"
    )
    seconds: Annotated[Seconds | None, Drawn(0.211, 1.523, 4.019, 12.043)] = Field(
        None, description="how long it lasts; after a kill or crash: when to restart"
    )
    may_not_strike: Annotated[bool, NotHunted("a hunt accepts that anyway")] = Field(
        False,
        description=(
            "accept a run in which it never happens or finds no target, which is unknown otherwise"
        ),
    )
    ping: Annotated[Literal["alive", "dead"], Drawn("dead")] = Field(
        "alive", description="whether a wedged sandbox still answers pings"
    )

    @model_validator(mode="after")
    def _one(self) -> EventPart:
        if self.after is None and "at" not in self.model_fields_set:
            raise ValueError("an event needs `at` (seconds) or `after` (a point of the journal)")
        given = self.kinds
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(
                f"an event has `at` and exactly one of {', '.join(KINDS)}; found {found}"
            )
        if given[0] in ("pause", "cut_off") and self.seconds is None:
            raise ValueError(f"{given[0]} needs `seconds`, its duration")
        return self

    @property
    def kinds(self) -> list[str]:
        """Return the kinds that are given; a valid event has one."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def kind(self) -> str:
        return self.kinds[0]

    @property
    def target(self) -> Any:
        return getattr(self, self.kind)

    def wrong_target(
        self, workers: Collection[str], nodes: Collection[str], sandboxes: Collection[str]
    ) -> str | None:
        """Return what is wrong with the target; None if the scenario has it."""
        allowed: list[Collection[str]] = {
            "kill": [workers, nodes, ("limiter", "driver")],
            "pause": [workers, nodes, ("limiter",)],
            "cut_off": [workers],
            "crash": [("sandbox",), sandboxes],
            "wedge": [("sandbox",), sandboxes],
        }.get(self.kind, [])
        if not allowed or any(self.target in names for names in allowed):
            return None
        hint = near(str(self.target), chain(*allowed))
        return f"{self.kind}: this scenario has no {self.target!r}; {hint}"

    def workers(self, names: list[str]) -> list[str]:
        """Return the workers that the target means."""
        target = str(self.target)
        if target.startswith("worker-"):
            return [names[int(target.removeprefix("worker-")) - 1]]
        if target.startswith("node-"):
            prefix = f"n{target.removeprefix('node-')}-"
            return [name for name in names if name.startswith(prefix)]
        return [target] if target in names else []


_HUNTED = KINDS[:-1]
"""The kinds that a hunt draws."""


def draw_events(drawing: Drawing, _: Data) -> list[Data]:
    """Return what happens meanwhile to cluster and sandbox."""
    if not drawing.has("events", "kills"):
        return []
    count = drawing.random.randint(2, 3) if drawing.has("two_events") else 1
    kinds = KINDS[:3] if drawing.has("kills") else _HUNTED
    return [_draw_event(drawing, drawing.one(*kinds)) for _ in range(count)]


def _draw_event(drawing: Drawing, kind: str) -> Data:
    fields = EventPart.model_fields
    event: Data = {"at": drawing.value(fields["at"]), kind: drawing.value(fields[kind])}
    for name, field in fields.items():
        drawn = declared(field.metadata, Drawn)
        if drawn is not None and drawn.share is not None and drawing.wants(drawn):
            event[name] = drawing.value(field)
    must_end = kind in ("pause", "cut_off")
    if must_end or (kind in ("kill", "crash", "wedge") and drawing.happens(0.8)):
        event["seconds"] = drawing.value(fields["seconds"])
    if event.get("kill") == "limiter":
        event.setdefault("seconds", 4)  # a limiter that never returns leaves nothing to judge
    if kind == "wedge" and drawing.happens(0.3):
        event["ping"] = "dead"
    return event
