"""Admin routes and safety of the fake: state, faults, ledger, reset, tokens, addresses."""

from __future__ import annotations

import base64
import json

import aiohttp
import pytest

from sfusion.fakes.sandbox import FakeSandbox, UnsafeBindError
from tests.fakes.sandbox.runner import Runner
from tests.fakes.wire.raw import PING, RawAnswer, one, post, run_code


async def ask(
    sandbox: FakeSandbox, method: str, route: str, body: str = "", **headers: str
) -> RawAnswer:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"{method} /__sfusion/{route} HTTP/1.1\r\nhost: "
        f"localhost\r\n{lines}content-length: {len(body)}\r\n\r\n"
    )
    return await one(sandbox.port, (head + body).encode())


async def test_state_shows_the_settings() -> None:
    async with FakeSandbox(
        model={"kind": "quota", "in_flight": 8}, seed=7, profile="2025-06"
    ) as sandbox:
        state = (await ask(sandbox, "GET", "state")).json
    assert state["url"] == sandbox.url
    assert (state["profile"], state["executor"], state["runs_code"]) == ("2025-06", "none", False)
    assert (state["model"], state["seed"]) == ({"in_flight": 8, "kind": "quota"}, 7)


async def test_faults_are_set_read_and_cleared_over_http() -> None:
    async with FakeSandbox() as sandbox:
        rules = [{"name": "flaky", "first": 1, "what": {"status": 503}}]
        answer = await ask(sandbox, "PUT", "faults", json.dumps({"seed": 3, "faults": rules}))
        assert answer.json["seed"] == 3
        assert (await one(sandbox.port, run_code())).status == 503
        assert (await one(sandbox.port, run_code())).status == 200
        now = (await ask(sandbox, "GET", "faults")).json
        assert now["strikes"] == {"flaky": 1}
        again = await ask(sandbox, "PUT", "faults", json.dumps(now["faults"]))
        assert again.json["faults"] == now["faults"], "the rules can be put back as they were read"
        assert (await ask(sandbox, "PUT", "faults", "- {what: {status: 500}}")).status == 200, (
            "YAML works too"
        )
        assert (await one(sandbox.port, run_code())).status == 500
        assert (await ask(sandbox, "DELETE", "faults")).json["faults"] == []
        assert (await one(sandbox.port, run_code())).status == 200


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("- {what: {stauts: 1}}", "did you mean 'status'"),
        ('{"seed": "x", "faults": []}', "seed must be a whole number"),
        ("[1, 2", "not YAML"),
    ],
)
async def test_invalid_faults_are_refused_and_change_nothing(body: str, sentence: str) -> None:
    async with FakeSandbox(faults=[{"name": "old", "what": {"status": 503}}]) as sandbox:
        answer = await ask(sandbox, "PUT", "faults", body)
        assert answer.status == 422
        assert sentence in answer.json["detail"]
        assert (await ask(sandbox, "GET", "state")).json["faults"] == ["old"]


async def test_ledger_counts_arrivals_and_executions_per_call() -> None:
    async with FakeSandbox(
        faults=[{"first_attempts": 1, "phase": "after", "what": {"status": 504}}]
    ) as sandbox:
        for _ in range(2):
            await one(sandbox.port, run_code("# sfusion:call=c1"))
        await one(sandbox.port, post("/run_code", b"{}"))
        ledger = (await ask(sandbox, "GET", "ledger")).json
        assert ledger["calls"]["c1"] == {
            "arrived": 2,
            "started": 2,
            "finished": 2,
            "statuses": [504, 200],
        }
        assert (ledger["arrived"], ledger["started"], ledger["peak_executing"]) == (3, 2, 1)
        assert ledger["statuses"] == {"200": 1, "422": 1, "504": 1}
        assert ledger["strikes"] == {"status": 1}
        assert "calls" not in (await ask(sandbox, "GET", "ledger?calls=0")).json


async def test_calls_without_a_mark_are_identified_by_their_body() -> None:
    async with FakeSandbox() as sandbox:
        for code in ("a", "b", "a"):
            await one(sandbox.port, run_code(code))
        assert sorted(record.arrived for record in sandbox.ledger.calls.values()) == [1, 2]


async def test_reset_clears_the_ledger_and_restarts_the_faults() -> None:
    async with FakeSandbox(faults=[{"first": 1, "what": {"status": 503}}]) as sandbox:
        assert [(await one(sandbox.port, run_code())).status for _ in range(2)] == [503, 200]
        assert (await ask(sandbox, "POST", "reset")).status == 200
        assert sandbox.ledger.snapshot()["calls"] == {}
        assert (await one(sandbox.port, run_code())).status == 503


async def test_admin_requests_are_neither_struck_nor_counted() -> None:
    async with FakeSandbox(faults=[{"path": "*", "what": {"status": 503}}]) as sandbox:
        sandbox.wedge(ping="dead")
        state = await ask(sandbox, "GET", "state")
        assert state.json["wedged"] is True
        assert sandbox.ledger.arrived == 0


async def test_unknown_admin_route_lists_the_known_ones() -> None:
    async with FakeSandbox() as sandbox:
        assert (
            "faults, ledger, metrics, reset, state"
            in (await ask(sandbox, "GET", "stat")).json["detail"]
        )
        wrong = await ask(sandbox, "POST", "faults")
        assert (wrong.status, wrong.header("allow")) == (405, "DELETE, GET, PUT")


async def test_token_guards_the_admin_routes() -> None:
    async with FakeSandbox(token="secret") as sandbox:
        assert (await ask(sandbox, "GET", "state")).status == 401
        assert (await ask(sandbox, "GET", "state", x_sfusion_token="wrong")).status == 401
        assert (await ask(sandbox, "GET", "state", x_sfusion_token="secret")).status == 200
        assert (await ask(sandbox, "GET", "state", authorization="Bearer secret")).status == 200
        basic = base64.b64encode(b"x:secret").decode()
        assert (await ask(sandbox, "GET", "state", authorization=f"Basic {basic}")).status == 200
        assert (await ask(sandbox, "GET", "state", authorization="Basic ???")).status == 401
        assert (await one(sandbox.port, run_code())).status == 200, (
            "work needs no token on loopback"
        )
        assert (
            "secret"
            not in (await ask(sandbox, "GET", "state", x_sfusion_token="secret")).body.decode()
        )


def test_running_code_for_other_machines_needs_a_flag_and_a_token() -> None:
    for options in ({}, {"allow_remote": True}, {"token": "t"}):
        with pytest.raises(UnsafeBindError, match="would run code for anyone"):
            FakeSandbox(executor=Runner(), host="0.0.0.0", **options)
    assert FakeSandbox(executor=Runner(), host="127.0.0.1").token


def test_fake_that_runs_nothing_may_listen_anywhere_with_guarded_admin_routes() -> None:
    assert FakeSandbox(host="0.0.0.0").token


async def test_remote_requests_run_code_only_with_the_token() -> None:
    async with FakeSandbox(
        executor=Runner(), host="0.0.0.0", allow_remote=True, token="t0k"
    ) as sandbox:
        assert (await one(sandbox.port, run_code())).status == 401
        assert sandbox.ledger.started == 0
        assert (await one(sandbox.port, PING)).status == 200
        async with aiohttp.ClientSession() as session:
            url = f"http://x:t0k@127.0.0.1:{sandbox.port}/run_code"
            async with session.post(url, json={"code": "x", "language": "python"}) as answer:
                assert answer.status == 200, (
                    "a token in the URL is enough, so any client can send it"
                )


async def test_bug_in_the_fake_does_not_give_an_aiohttp_error_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeSandbox() as sandbox:

        def fail(request: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(sandbox.server.app, "visit", fail)
        answer = await one(sandbox.port, run_code())
    assert (answer.status, answer.json["detail"]) == (500, "a bug")
    assert answer.header("server") == "uvicorn"
    assert "a bug" in caplog.text


async def test_bug_in_an_executor_looks_like_a_bug_of_the_real_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeSandbox() as sandbox:
        monkeypatch.setattr(sandbox.executor, "run_jupyter", None)
        answer = await one(sandbox.port, post("/run_jupyter", b'{"cells":["1"]}'))
    assert answer.status == 500
    assert list(answer.json) == ["detail", "traceback"]
    assert "the fake failed to answer" in caplog.text
