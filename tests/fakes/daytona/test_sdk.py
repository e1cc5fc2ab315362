"""Daytona's own SDK, synchronous and asynchronous: whole episodes, and what it does under each
fault."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import pytest

from sfusion.fakes.daytona import FakeDaytona
from tests.fakes.lifecycle.watching import Event, arrivals, done, executed, requests
from tests.sfusion_tools.sandbox.helpers import until

pytest.importorskip("daytona", reason="needs Daytona's SDK: tox -e lifecycle")

from daytona import (
    AsyncDaytona,
    CreateSandboxFromSnapshotParams,
    Daytona,
    DaytonaConfig,
)
from daytona.common import errors

OLD = version("daytona").startswith("0.167.")
HELLO = 'true # sfusion:call=c1 prints="hello"'
KINDS = ["sync", "async"]
_OLD_ERRORS = ("DaytonaNotFoundError", "DaytonaRateLimitError")


def named(expected: str) -> str:
    """The error of the installed version: 0.167 has a class of its own for two of them only."""
    return expected if not OLD or expected in _OLD_ERRORS else "DaytonaError"


class Bench:
    """A fake, with its events, and a client of either kind."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        self.events: list[Event] = []
        self.fake = FakeDaytona(executor="scripted", journal=self.events.append, **options)

    def run(self, episode: Any, *arguments: Any) -> Any:
        with self.fake:
            try:
                return asyncio.run(self._with_client(episode, *arguments))
            finally:
                self.orphans = len(self.fake.orphans())

    async def _with_client(self, episode: Any, *arguments: Any) -> Any:
        config = DaytonaConfig(api_key="secret-key", api_url=self.fake.api_url)
        if self.kind == "sync":
            return await episode(Daytona(config), *arguments)
        async with AsyncDaytona(config) as client:
            return await episode(client, *arguments)

    def error(self, episode: Any, *arguments: Any) -> Exception:
        """The error in which an episode ends."""
        try:
            found = self.run(episode, *arguments)
        except Exception as error:
            return error
        pytest.fail(f"no error, but {found!r}")


async def create(client: Any, timeout: float = 30) -> Any:
    labels = {"episode": "e1"}
    return await done(
        client.create(CreateSandboxFromSnapshotParams(labels=labels), timeout=timeout)
    )


async def execute(client: Any) -> Any:
    sandbox = await create(client)
    return await done(sandbox.process.exec(HELLO))


async def interpret(client: Any) -> Any:
    sandbox = await create(client)
    return await done(sandbox.code_interpreter.run_code(HELLO))


async def delete(client: Any) -> Any:
    sandbox = await create(client)
    await done(sandbox.delete())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- whole episodes --


def test_a_whole_episode(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        assert (await done(sandbox.process.exec(HELLO))).result == "hello"
        ran = await done(sandbox.process.code_run('1 # sfusion:call=c2 prints="two" exit=3'))
        assert (ran.result, ran.exit_code) == ("two", 3)
        said = await done(sandbox.code_interpreter.run_code('1 # sfusion:call=c3 prints="three"'))
        assert (said.stdout, said.error) == ("three", None)
        raised = await done(
            sandbox.code_interpreter.run_code('1 # sfusion:call=c4 raises="ValueError: bad"')
        )
        assert (raised.error.name, raised.error.value) == ("ValueError", "bad")
        await done(sandbox.fs.upload_file(b"data \xff", "a.txt"))
        assert await done(sandbox.fs.download_file("a.txt")) == b"data \xff"
        await done(sandbox.refresh_activity())
        await done(sandbox.delete())
        assert sandbox.state == "destroyed"

    bench = Bench(kind, model={"boot": "100ms"})
    bench.run(episode)
    assert bench.orphans == 0
    names = [event["event"] for event in bench.events if event["event"].startswith("sandbox_")]
    assert names == [
        *("sandbox_created", "sandbox_ready", "sandbox_renewed"),
        *("sandbox_deleting", "sandbox_deleted"),
    ]
    assert {event["episode"] for event in bench.events if "instance" in event} == {"e1"}
    assert "secret-key" not in repr(bench.events)


def test_sandboxes_are_listed_by_label(kind: str) -> None:
    async def episode(client: Any) -> list[str]:
        sandbox = await create(client)
        await done(client.create(CreateSandboxFromSnapshotParams(labels={"episode": "e2"})))
        if OLD:
            page = await done(client.list(labels={"episode": "e1"}))
            found = page.items
        elif kind == "sync":
            found = list(client.list(_query()))
        else:
            found = [one async for one in client.list(_query())]
        assert [one.id for one in found] == [sandbox.id]
        return [one.state for one in found]

    assert Bench(kind).run(episode) == ["started"]


def _query() -> Any:
    from daytona import ListSandboxesQuery

    return ListSandboxesQuery(labels={"episode": "e1"})


def test_it_is_pointed_at_the_fake_by_its_own_variables(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeDaytona(executor="scripted") as fake:
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)

        async def episode() -> None:
            client = Daytona() if kind == "sync" else AsyncDaytona()
            await delete(client)
            if kind == "async":
                await client.close()

        asyncio.run(episode())
        assert fake.snapshot()["deleted"] == 1


# -- create --

CREATE = [
    ({"what": {"status": 429}}, "DaytonaRateLimitError", 0),
    ({"what": {"status": 429, "retry_after": 1}, "times": 1}, "DaytonaRateLimitError", 0),
    ({"what": {"status": 500}}, "DaytonaInternalServerError", 0),
    ({"what": {"status": 502}, "phase": "after"}, "DaytonaBadGatewayError", 1),
    ({"what": {"status": 503}, "phase": "after"}, "DaytonaServiceUnavailableError", 1),
    ({"what": {"status": 504}, "phase": "after"}, "DaytonaTimeoutError", 1),
    ({"what": {"reset": True}, "phase": "after"}, "DaytonaConnectionError", 1),
    ({"what": {"close": True}, "phase": "after"}, "DaytonaConnectionError", 1),
]


@pytest.mark.parametrize(("rule", "expected", "orphans"), CREATE)
def test_a_create_that_fails_is_sent_once_and_leaves_an_orphan_if_it_had_effect(
    kind: str, rule: dict[str, Any], expected: str, orphans: int
) -> None:
    bench = Bench(kind, faults=[{"on": "create", **rule}])
    assert type(bench.error(create)).__name__ == named(expected)
    assert requests(bench.events, "create") == 1
    assert bench.orphans == orphans


def test_a_create_slower_than_the_clients_limit_leaves_an_orphan(kind: str) -> None:
    slow = {"on": "create", "phase": "after", "what": {"delay": "60s"}}
    bench = Bench(kind, faults=[slow])
    assert isinstance(bench.error(create, 1), errors.DaytonaTimeoutError)
    assert (requests(bench.events, "create"), bench.orphans) == (1, 1)


def test_a_sandbox_that_is_never_ready_stays_and_the_error_names_it(kind: str) -> None:
    bench = Bench(kind, model={"boot": "1h"})
    error = bench.error(create, 1)
    assert isinstance(error, errors.DaytonaTimeoutError)
    made = next(event for event in bench.events if event["event"] == "sandbox_created")
    if not OLD:
        assert made["instance"] in f"{error} {vars(error)}"
    assert (requests(bench.events, "delete"), bench.orphans) == (0, 1)


@pytest.mark.parametrize("status", [500, 429])
def test_a_poll_that_fails_once_fails_the_create(kind: str, status: int) -> None:
    refuses = {"on": "ready", "times": 1, "what": {"status": status}}
    bench = Bench(kind, model={"boot": "300ms"}, faults=[refuses])
    bench.error(create)
    assert (bench.orphans, requests(bench.events, "delete")) == (1, 0)


def test_a_poll_that_is_reset_once_is_repeated(kind: str) -> None:
    reset = {"on": "ready", "times": 1, "what": {"reset": True}}
    bench = Bench(kind, model={"boot": "300ms"}, faults=[reset])
    bench.run(create)
    assert requests(bench.events, "ready") >= 2


@pytest.mark.parametrize("moment", ["in flight", "booting"])
def test_a_cancelled_create_leaves_an_orphan(moment: str) -> None:
    async def episode(client: Any) -> None:
        task = asyncio.ensure_future(create(client))
        wanted = "sandbox_created" if moment == "in flight" else "answered"
        await until(lambda: any(event["event"] == wanted for event in bench.events))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    slow = {"on": "create", "phase": "after", "what": {"delay": "60s"}}
    faults = [slow] if moment == "in flight" else []
    bench = Bench("async", model={"boot": "1h"}, faults=faults)
    bench.run(episode)
    assert (bench.orphans, requests(bench.events, "delete")) == (1, 0)


def test_a_limit_is_not_waited_for(kind: str) -> None:
    """Retry-After is not on the exception's text either."""

    async def episode(client: Any) -> None:
        await create(client)
        await create(client)

    bench = Bench(kind, model={"live": 1, "retry_after": "7s"})
    error = bench.error(episode)
    assert isinstance(error, errors.DaytonaRateLimitError)
    assert "7" not in str(error).replace("429", "")
    assert requests(bench.events, "create") == 2


# -- commands --

EXECUTE = [
    ({"reset": True}, "DaytonaConnectionError"),
    ({"death": "reset"}, "DaytonaConnectionError"),
    ({"death": "gone"}, "DaytonaNotFoundError"),
    ({"death": "cut"}, "DaytonaConnectionError"),
    ({"status": 410}, "DaytonaGoneError"),
    ({"status": 500}, "DaytonaInternalServerError"),
    ({"status": 502}, "DaytonaBadGatewayError"),
    ({"status": 503}, "DaytonaServiceUnavailableError"),
    ({"status": 504}, "DaytonaTimeoutError"),
]


@pytest.mark.parametrize(("what", "expected"), EXECUTE)
def test_a_command_that_fails_is_not_repeated(
    kind: str, what: dict[str, Any], expected: str
) -> None:
    bench = Bench(kind, faults=[{"on": "exec", "phase": _phase(what), "what": what}])
    assert type(bench.error(execute)).__name__ == named(expected)
    assert requests(bench.events, "exec") == 1


def _phase(what: dict[str, Any]) -> str:
    return "during" if "death" in what else "after"


def test_a_command_whose_connection_closes_is_repeated_by_the_synchronous_client() -> None:
    """It runs twice, and the result reads ok."""
    closes = {"on": "exec", "phase": "after", "times": 1, "what": {"close": True}}
    bench = Bench("sync", faults=[closes])
    assert bench.run(execute).result == "hello"
    assert executed(bench.events, "c1") == 2

    always = Bench("sync", faults=[closes | {"times": None}])
    assert type(always.error(execute)) is errors.DaytonaError
    assert executed(always.events, "c1") == 4


def test_a_command_whose_connection_closes_is_not_repeated_by_the_asynchronous_client() -> None:
    closes = {"on": "exec", "phase": "after", "times": 1, "what": {"close": True}}
    bench = Bench("async", faults=[closes])
    assert type(bench.error(execute)).__name__ == named("DaytonaConnectionError")
    assert executed(bench.events, "c1") == 1


def test_a_command_that_hangs_ends_five_seconds_after_its_limit(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        await done(sandbox.process.exec(HELLO, timeout=1))

    bench = Bench(kind, faults=[{"on": "exec", "what": {"death": "silent"}}])
    error = bench.error(episode)
    assert isinstance(error, errors.DaytonaError if OLD else errors.DaytonaTimeoutError)


def test_code_run_raises_errors_that_are_not_daytonas(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        await done(sandbox.process.code_run(HELLO))

    bench = Bench(kind, faults=[{"on": "exec", "what": {"death": "gone"}}])
    assert not isinstance(bench.error(episode), errors.DaytonaError)


INTERPRET = [
    ({"close": True}, "DaytonaConnectionError"),
    ({"death": "gone"}, "DaytonaConnectionError"),
    ({"status": 503}, "DaytonaConnectionError"),
]


@pytest.mark.parametrize(("what", "expected"), INTERPRET)
def test_an_interpreter_that_dies_is_a_lost_connection(
    kind: str, what: dict[str, Any], expected: str
) -> None:
    bench = Bench(kind, faults=[{"on": "exec", "phase": "during", "what": what}])
    found = type(bench.error(interpret)).__name__
    if kind == "sync" and found == "DaytonaError":
        # With httpx-ws 0.9 a connection that ends without a close frame has no text to go by.
        assert what == {"close": True}
        return
    assert found == expected


def test_an_interpreter_that_is_reset_has_no_error_of_its_own_in_the_synchronous_client(
    kind: str,
) -> None:
    bench = Bench(kind, faults=[{"on": "exec", "what": {"death": "reset"}}])
    is_plain = kind == "sync" and not OLD
    expected = "DaytonaError" if is_plain else "DaytonaConnectionError"
    assert type(bench.error(interpret)).__name__ == expected


def test_an_interpreter_that_ends_early_looks_like_the_end_of_the_program(kind: str) -> None:
    bench = Bench(kind, faults=[{"on": "exec", "what": {"early_end": 0}}])
    said = bench.run(interpret)
    assert (said.stdout, said.error) == ("", None)


def test_an_interpreter_of_a_dead_sandbox_has_no_error_of_its_own(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        bench.fake.kill(sandbox.id)
        await done(sandbox.code_interpreter.run_code(HELLO))

    bench = Bench(kind)
    assert type(bench.error(episode)) is errors.DaytonaError


def test_an_interpreter_that_is_stopped_says_that_its_time_was_up(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        await done(sandbox.code_interpreter.run_code("1 # sfusion:call=c1 seconds=60", timeout=1))

    assert isinstance(Bench(kind).error(episode), errors.DaytonaTimeoutError)


# -- files, renew, delete --


def test_a_file_of_a_dead_sandbox_is_an_error_without_a_type(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        bench.fake.kill(sandbox.id)
        await done(sandbox.fs.download_file("a.txt"))

    bench = Bench(kind)
    assert type(bench.error(episode)) is errors.DaytonaError


def test_a_file_whose_read_is_reset_is_not_read_again(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        await done(sandbox.fs.upload_file(b"data", "a.txt"))
        await done(sandbox.fs.download_file("a.txt"))

    reset = {"on": "file", "path": "*bulk-download", "what": {"reset": True}}
    bench = Bench(kind, faults=[reset])
    assert isinstance(bench.error(episode), errors.DaytonaError)
    assert requests(bench.events, "file") == 2


def test_a_dead_sandbox_cannot_be_renewed(kind: str) -> None:
    async def episode(client: Any) -> None:
        sandbox = await create(client)
        bench.fake.kill(sandbox.id)
        await done(sandbox.refresh_activity())

    bench = Bench(kind)
    assert type(bench.error(episode)).__name__ == "DaytonaNotFoundError"


@pytest.mark.parametrize("status", [500, 502, 504])
@pytest.mark.parametrize(("phase", "orphans"), [("before", 1), ("after", 0)])
def test_a_delete_that_fails_is_sent_once(kind: str, status: int, phase: str, orphans: int) -> None:
    lost = {"on": "delete", "phase": phase, "what": {"status": status}}
    bench = Bench(kind, faults=[lost])
    assert isinstance(bench.error(delete), errors.DaytonaError)
    assert (requests(bench.events, "delete"), bench.orphans) == (1, orphans)


def test_a_delete_that_is_reset_is_sent_again(kind: str) -> None:
    bench = Bench(kind, faults=[{"on": "delete", "times": 1, "what": {"reset": True}}])
    bench.run(delete)
    assert [event["attempt"] for event in arrivals(bench.events, "delete")] == [1, 2]
    assert bench.orphans == 0
