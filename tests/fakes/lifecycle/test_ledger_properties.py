"""Whatever clients do, a ledger keeps its limits and its order."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sfusion.fakes.lifecycle import LifecycleEvent, Sandbox
from tests.fakes.lifecycle.ledgers import Watched

MODELS = st.fixed_dictionaries(
    {},
    optional={
        "boot": st.sampled_from([0, 1, {"uniform": [0, 3]}]),
        "starting": st.integers(1, 3),
        "live": st.integers(1, 4),
        "creates_per_second": st.sampled_from([0.5, 2]),
        "ttl": st.sampled_from([1, 4]),
        "idle": st.sampled_from([1, 3]),
        "delete_takes": st.sampled_from([0, 2]),
        "dies": st.sampled_from([0.3, 1.0]),
    },
)
OPERATIONS = ("create", "begin", "end", "renew", "kill", "delete", "write")
STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(OPERATIONS), st.integers(0, 5)), max_size=40
)


class Play:
    """Operations on one ledger, a quarter of a second or more apart."""

    def __init__(self, model: dict[str, Any], *, impatient: bool = False) -> None:
        self.watched = Watched(**model)
        self._impatient = impatient
        self._now = 0.0
        self._made: list[Sandbox] = []

    def run(self, steps: list[tuple[int, str, int]]) -> list[LifecycleEvent]:
        for quarters, operation, which in steps:
            self._wait(quarters / 4)
            self._do(operation, which)
            self._check()
        self._wait(100.0)
        return self.watched.events

    def _wait(self, seconds: float) -> None:
        """Advance at the end, or at every moment on the way."""
        end = self._now + seconds
        while self._impatient:
            following = self.watched.ledger.next_at()
            if following is None or following >= end:
                break
            self.watched.ledger.advance(following)
        self._now = end
        self.watched.ledger.advance(end)

    def _do(self, operation: str, which: int) -> None:
        ledger = self.watched.ledger
        if operation == "create":
            made = ledger.create(self._now, episode=f"e{which}", ttl=float(which + 1))
            if isinstance(made, Sandbox):
                self._made.append(made)
            return
        sandbox = self._made[which % len(self._made)] if self._made else None
        if sandbox is None:
            return
        if operation == "kill":
            ledger.kill(sandbox, self._now)
        elif operation == "delete":
            ledger.delete(sandbox.id, self._now)
        elif ledger.running(sandbox.id, self._now) is not None:
            self._use(operation, sandbox)

    def _use(self, operation: str, sandbox: Sandbox) -> None:
        ledger = self.watched.ledger
        if operation == "begin":
            ledger.begin(sandbox, self._now, "c")
        elif operation == "end" and sandbox.executing:
            ledger.end(sandbox, self._now)
        elif operation == "renew":
            ledger.renew(sandbox, self._now)
        elif operation == "write":
            ledger.write(sandbox, "/a", b"1234", now=self._now)

    def _check(self) -> None:
        ledger = self.watched.ledger
        model = ledger.model
        states = Counter(sandbox.state for sandbox in ledger.all())
        assert ledger.live == states["pending"] + states["running"] + states["deleting"]
        assert ledger.pending == states["pending"]
        assert ledger.booting == sum(sandbox.is_booting for sandbox in ledger.all())
        assert model.live is None or ledger.live <= model.live
        assert model.starting is None or ledger.booting <= model.starting
        kept = sum(len(file.content) for one in ledger.all() for file in one.files.values())
        assert ledger._stored == kept


@given(MODELS, STEPS)
def test_limits_hold_and_every_sandbox_has_one_life(
    model: dict[str, Any], steps: list[tuple[int, str, int]]
) -> None:
    events = Play(model).run(steps)
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    lives: dict[str, list[str]] = {}
    for event in events:
        kind = event["event"].removeprefix("sandbox_")
        if kind in ("created", "ready", "died", "deleting", "deleted"):
            lives.setdefault(event["instance"], []).append(kind)
    possible = ["created", "ready", "died", "deleting", "deleted"]
    for life in lives.values():
        assert life == [kind for kind in possible if kind in life]
        assert life[0] == "created"
        assert ("deleting" in life) == ("deleted" in life)


@given(MODELS, STEPS)
def test_how_often_it_is_asked_to_advance_changes_nothing(
    model: dict[str, Any], steps: list[tuple[int, str, int]]
) -> None:
    assert Play(model).run(steps) == Play(model, impatient=True).run(steps)
