"""E2B's own SDKs, synchronous and asynchronous: whole episodes, and what they do under each
fault."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import pytest

from sfusion.fakes.e2b import FakeE2B
from tests.fakes.lifecycle.watching import Event, done, executed, requests

pytest.importorskip("e2b", reason="needs E2B's SDK: tox -e lifecycle")

import e2b
import e2b_code_interpreter as interpreter

OLD = version("e2b").startswith("2.10.")
KINDS = ["sync", "async"]
HELLO = 'true # sfusion:call=c1 prints="hello"'
NEW_ONLY = pytest.mark.skipif(OLD, reason="2.10 repeats nothing, and knows fewer errors")

_LOOP = asyncio.new_event_loop()
"""Of every episode: 2.10 keeps its connections for the whole process, and so their loop."""


class Bench:
    """A fake with its events, and the SDK's class of either kind."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.kind = kind
        self.events: list[Event] = []
        self.fake = FakeE2B(executor="scripted", journal=self.events.append, **options)
        self._monkeypatch = monkeypatch

    @property
    def sandbox(self) -> Any:
        return e2b.Sandbox if self.kind == "sync" else e2b.AsyncSandbox

    @property
    def coder(self) -> Any:
        return interpreter.Sandbox if self.kind == "sync" else interpreter.AsyncSandbox

    def run(self, episode: Any) -> Any:
        with self.fake:
            for name, value in self.fake.environment.items():
                self._monkeypatch.setenv(name, value)
            try:
                return _LOOP.run_until_complete(episode(self))
            finally:
                self.orphans = len(self.fake.orphans())

    def error(self, episode: Any) -> Exception:
        """The error in which an episode ends."""
        try:
            found = self.run(episode)
        except Exception as error:
            return error
        pytest.fail(f"no error, but {found!r}")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def create(bench: Bench) -> Any:
    return await done(bench.sandbox.create(metadata={"episode": "e1"}))


async def execute(bench: Bench) -> Any:
    sandbox = await create(bench)
    return await done(sandbox.commands.run(HELLO))


async def run_code(bench: Bench) -> Any:
    sandbox = await done(bench.coder.create())
    return await done(sandbox.run_code(HELLO))


async def kill(bench: Bench) -> Any:
    sandbox = await create(bench)
    return await done(sandbox.kill())


def test_a_whole_episode(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def episode(bench: Bench) -> None:
        sandbox = await create(bench)
        assert (await done(sandbox.commands.run(HELLO))).stdout == "hello"
        with pytest.raises(e2b.CommandExitException) as failed:
            await done(sandbox.commands.run('x # sfusion:call=c2 errors="bad" exit=3'))
        assert (failed.value.exit_code, failed.value.stderr) == (3, "bad")
        await done(sandbox.files.write("a.txt", b"data"))
        assert await done(sandbox.files.read("a.txt")) == "data"
        await done(sandbox.set_timeout(60))
        assert (await done(sandbox.get_info())).metadata == {"episode": "e1"}
        assert await done(sandbox.is_running())
        assert await done(sandbox.kill())
        assert not await done(sandbox.kill())

    bench = Bench(kind, monkeypatch, model={"boot": "50ms"})
    bench.run(episode)
    names = [event["event"] for event in bench.events if event["event"].startswith("sandbox_")]
    assert names == [
        *("sandbox_created", "sandbox_ready", "sandbox_renewed"),
        *("sandbox_deleting", "sandbox_deleted"),
    ]
    assert {event["episode"] for event in bench.events if "instance" in event} == {"e1"}
    assert "e2b_000" not in repr(bench.events)


@NEW_ONLY
def test_the_code_interpreter_runs_code(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = Bench(kind, monkeypatch).run(run_code)
    assert (execution.logs.stdout, execution.error) == (["hello"], None)


# -- create --

CREATE = [
    ({"what": {"status": 429}}, 4, "RateLimitException", 0),
    ({"what": {"status": 429, "retry_after": 1}, "times": 1}, 2, None, 1),
    ({"what": {"status": 429, "retry_after": 120}}, 1, "RateLimitException", 0),
    ({"what": {"status": 500}}, 1, "SandboxException", 0),
    ({"what": {"status": 502}, "phase": "after", "times": 1}, 2, None, 2),
    ({"what": {"status": 504}, "phase": "after", "times": 1}, 2, None, 2),
    ({"what": {"status": 504}, "phase": "after"}, 4, "SandboxException", 4),
    ({"what": {"reset": True}, "phase": "after"}, 1, "", 1),
    ({"what": {"close": True}, "phase": "after"}, 1, "RemoteProtocolError", 1),
]


@NEW_ONLY
@pytest.mark.parametrize(("rule", "sent", "expected", "live"), CREATE)
def test_a_create_is_repeated_and_each_with_effect_leaves_a_sandbox(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    rule: dict[str, Any],
    sent: int,
    expected: str | None,
    live: int,
) -> None:
    bench = Bench(kind, monkeypatch, faults=[{"on": "create", **rule}])
    if expected is None:
        bench.run(create)
    else:
        error = bench.error(create)
        assert expected in [base.__name__ for base in type(error).__mro__] or not expected, error
        assert expected or not isinstance(error, e2b.SandboxException)
    assert (requests(bench.events, "create"), bench.orphans) == (sent, live)


@NEW_ONLY
def test_an_idempotency_key_leaves_one_sandbox(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def episode(bench: Bench) -> None:
        await done(bench.sandbox.create(idempotency_key="k1"))

    lost = {"on": "create", "phase": "after", "times": 1, "what": {"status": 504}}
    bench = Bench(kind, monkeypatch, faults=[lost])
    bench.run(episode)
    assert (requests(bench.events, "create"), bench.orphans) == (2, 1)


@NEW_ONLY
def test_a_create_slower_than_the_clients_limit_leaves_an_orphan(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def episode(bench: Bench) -> None:
        await done(bench.sandbox.create(request_timeout=0.5))

    slow = {"on": "create", "phase": "after", "what": {"delay": "60s"}}
    bench = Bench(kind, monkeypatch, faults=[slow])
    assert type(bench.error(episode)).__name__ in ("ReadTimeout", "TimeoutException")
    assert (requests(bench.events, "create"), bench.orphans) == (1, 1)


# -- commands --

EXECUTE = [
    ({"death": "gone"}, "SandboxNotRunningException"),
    ({"status": 410}, "SandboxException"),
    ({"status": 500}, "SandboxException"),
    ({"status": 503}, "SandboxUnreachableException"),
    ({"status": 502}, "SandboxUnreachableException"),
    ({"status": 504}, "TimeoutException"),
    ({"death": "cut"}, "SandboxNotRunningException"),
    ({"truncate": 0.5}, "SandboxUnreachableException"),
]


@NEW_ONLY
@pytest.mark.parametrize(("what", "expected"), EXECUTE)
def test_a_command_that_fails_is_not_repeated(
    kind: str, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any], expected: str
) -> None:
    bench = Bench(kind, monkeypatch, faults=[{"on": "exec", "what": what}])
    assert type(bench.error(execute)).__name__ == expected
    assert requests(bench.events, "exec") == 1


@NEW_ONLY
def test_a_command_whose_stream_ends_early_raises_a_bare_exception(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(kind, monkeypatch, faults=[{"on": "exec", "what": "early_end"}])
    error = bench.error(execute)
    assert type(error) is Exception
    assert "without an end event" in str(error)


@NEW_ONLY
def test_code_whose_stream_ends_early_is_a_success_with_a_part_of_the_output(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = {"on": "exec", "what": {"early_end": 0}}
    execution = Bench(kind, monkeypatch, faults=[early]).run(run_code)
    assert (execution.logs.stdout, execution.error) == ([], None)


@NEW_ONLY
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"status": 502}, "TimeoutException"),
        ({"death": "gone"}, "TimeoutException"),
        ({"status": 500}, "SandboxException"),
        ({"status": 504}, "SandboxException"),
        ({"close": True}, "RemoteProtocolError"),
    ],
)
def test_what_the_code_interpreter_calls_a_timeout(
    kind: str, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any], expected: str
) -> None:
    bench = Bench(kind, monkeypatch, faults=[{"on": "exec", "what": what}])
    assert type(bench.error(run_code)).__name__ == expected
    assert requests(bench.events, "exec") == 1


# -- files, renew, delete --


def test_a_dead_sandbox_has_no_files_and_cannot_be_renewed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def episode(bench: Bench) -> list[str]:
        sandbox = await create(bench)
        bench.fake.kill(sandbox.sandbox_id)
        found = []
        for act in (lambda: sandbox.files.read("a.txt"), lambda: sandbox.set_timeout(60)):
            try:
                await done(act())
            except e2b.SandboxException as error:
                found.append(type(error).__name__)
        return found

    names = Bench(kind, monkeypatch).run(episode)
    if OLD:
        assert names == ["TimeoutException", "NotFoundException"]
    else:
        assert names == ["SandboxNotRunningException", "SandboxNotFoundException"]


@NEW_ONLY
@pytest.mark.parametrize(("status", "sent"), [(500, 1), (502, 4), (504, 4)])
def test_a_lost_delete_is_repeated_for_some_statuses(
    kind: str, monkeypatch: pytest.MonkeyPatch, status: int, sent: int
) -> None:
    lost = {"on": "delete", "what": {"status": status}}
    bench = Bench(kind, monkeypatch, faults=[lost])
    bench.error(kill)
    assert (requests(bench.events, "delete"), bench.orphans) == (sent, 1)


@NEW_ONLY
def test_a_delete_whose_answer_is_lost_seems_never_to_have_been_needed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"on": "delete", "phase": "after", "times": 1, "what": {"status": 504}}
    bench = Bench(kind, monkeypatch, faults=[lost])
    assert bench.run(kill) is False
    assert (requests(bench.events, "delete"), bench.orphans) == (2, 0)


def test_a_command_runs_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(kind, monkeypatch)
    bench.run(execute)
    assert executed(bench.events, "c1") == 1
