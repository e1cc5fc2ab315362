"""The fake Daytona without the vendor's SDK: its wire, its faults, and what it keeps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.daytona import FakeDaytona
from sfusion.fakes.errors import FaultError, SandboxSetupError, UnsafeBindError
from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.lifecycle.watching import Event, arrivals, executed
from tests.sfusion_tools.sandbox.helpers import until

HELLO = 'true # sfusion:call=c1 prints="hello"'


class Wire:
    """Plain HTTP to a fake, whose events are kept."""

    def __init__(self, session: aiohttp.ClientSession, **options: Any) -> None:
        self.events: list[Event] = []
        self.fake = FakeDaytona(journal=self.events.append, **options)
        self._session = session

    async def send(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Send a request; return the status and the body as data."""
        url = path if path.startswith("http") else f"{self.fake.url}{path}"
        async with self._session.request(method, url, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if "json" in response.content_type else text

    async def create(self, **fields: Any) -> dict[str, Any]:
        status, sandbox = await self.send("POST", "/api/sandbox", json=fields)
        assert status == 200, sandbox
        return dict(sandbox)

    async def execute(self, instance: str, command: str = HELLO) -> tuple[int, Any]:
        path = f"/toolbox/{instance}/process/execute"
        return await self.send("POST", path, json={"command": command})

    def socket(self, instance: str) -> Any:
        url = f"{self.fake.url}/toolbox/{instance}/process/interpreter/execute"
        return self._session.ws_connect(url)


Make = Callable[..., Wire]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with aiohttp.ClientSession() as session:
        yield lambda **options: Wire(session, **options)


async def test_events_name_the_sandbox_the_episode_and_what_a_request_does(make: Make) -> None:
    wire = make(executor="scripted")
    async with wire.fake:
        sandbox = await wire.create(labels={"sfusion.episode": "e1"})
        await wire.execute(sandbox["id"])
        await wire.send("DELETE", f"/api/sandbox/{sandbox['id']}")
    sent = [event["sent"] for event in wire.events if event["event"] == "arrived"]
    about = {"instance": sandbox["id"], "episode": "e1"}
    assert sent == [
        {"on": "create"},
        {"on": "exec", **about, "command": sent[1]["command"]},
        {"on": "delete", **about},
    ]
    paths = [event["path"] for event in wire.events if event["event"] == "arrived"]
    assert paths[1:] == ["/toolbox/{id}/process/execute", "/api/sandbox/{id}"]
    created = next(event for event in wire.events if event["event"] == "sandbox_created")
    arrived = arrivals(wire.events, "create")[0]
    assert (created["call"], created["attempt"]) == (arrived["call"], arrived["attempt"])


async def test_a_create_with_effect_leaves_an_orphan_and_one_without_none(make: Make) -> None:
    rules = [
        {"on": "create", "first": 1, "what": {"status": 504}},
        {"on": "create", "phase": "after", "what": {"status": 504}},
    ]
    wire = make(faults=rules)
    async with wire.fake:
        assert (await wire.send("POST", "/api/sandbox", json={}))[0] == 504
        assert wire.fake.orphans() == []
        assert (await wire.send("POST", "/api/sandbox", json={}))[0] == 504
        assert len(wire.fake.orphans()) == 1


async def test_a_rule_for_one_operation_strikes_no_other(make: Make) -> None:
    wire = make(faults=[{"on": ["delete", "renew"], "what": {"status": 500}}], executor="scripted")
    async with wire.fake:
        sandbox = await wire.create()
        assert (await wire.execute(sandbox["id"]))[0] == 200
        path = f"/api/sandbox/{sandbox['id']}"
        assert (await wire.send("POST", f"{path}/last-activity"))[0] == 500
        assert (await wire.send("GET", path))[0] == 200
        assert (await wire.send("DELETE", path))[0] == 500


@pytest.mark.parametrize("how", ["reset", "gone", "cut", "silent"])
async def test_a_sandbox_that_dies_is_gone_for_every_later_request(make: Make, how: str) -> None:
    wire = make(faults=[{"on": "exec", "times": 1, "what": {"death": how}}], executor="scripted")
    async with wire.fake:
        sandbox = await wire.create()
        limit = aiohttp.ClientTimeout(total=0.3)
        path = f"/toolbox/{sandbox['id']}/process/execute"
        try:
            status, _ = await wire.send("POST", path, json={"command": HELLO}, timeout=limit)
        except TimeoutError:
            seen = "silent"
        except aiohttp.ClientPayloadError:
            seen = "cut"
        except aiohttp.ClientError:
            seen = "reset"
        else:
            seen = {404: "gone"}[status]
        assert seen == how
        died = next(event for event in wire.events if event["event"] == "sandbox_died")
        assert (died["why"], died["call"], died["attempt"]) == ("fault", "c1", 1)
        assert (await wire.execute(sandbox["id"]))[0] == 404
        status, shown = await wire.send("GET", f"/api/sandbox/{sandbox['id']}")
        assert (status, shown["state"]) == (200, "error")


async def test_a_command_ends_when_its_sandbox_does(make: Make) -> None:
    wire = make(model={"ttl": "200ms"}, executor="scripted")
    async with wire.fake:
        sandbox = await wire.create()
        status, _ = await wire.execute(sandbox["id"], "sleep # sfusion:call=c1 seconds=60")
        assert status == 404
    assert [event["event"] for event in wire.events if event.get("call") == "c1"] == [
        *("arrived", "started", "broken_off", "answered"),
    ]


async def test_a_command_without_a_script_fails_and_says_why(make: Make) -> None:
    wire = make()
    async with wire.fake:
        sandbox = await wire.create()
        _, result = await wire.execute(sandbox["id"], "ls")
        assert result["exitCode"] == 127
        assert "runs no code" in result["result"]


async def test_commands_really_run_if_that_is_asked_for(make: Make) -> None:
    wire = make(executor="python")
    async with wire.fake:
        sandbox = await wire.create()
        _, result = await wire.execute(sandbox["id"], "echo $((6 * 7))")
        assert (result["exitCode"], result["result"]) == (0, "42\n")


async def test_an_interpreter_is_a_socket_per_program(make: Make) -> None:
    wire = make(executor="scripted")
    async with wire.fake:
        sandbox = await wire.create()
        async with wire.socket(sandbox["id"]) as socket:
            await socket.send_json({"code": 'x # sfusion:call=c1 prints="hello"'})
            assert await socket.receive_json() == {"type": "stdout", "text": "hello"}
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1000
        with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
            await wire.socket("nothing").__aenter__()
    assert executed(wire.events, "c1") == 1


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"reset": True}, 1006),
        ({"close": True}, 1006),
        ({"status": 500}, 1011),
        ({"status": 503}, 1013),
        ({"death": "gone"}, 1011),
        ({"death": "cut"}, 1006),
        ({"early_end": 0}, 1000),
    ],
)
async def test_how_a_socket_ends_under_faults(make: Make, what: dict[str, Any], code: int) -> None:
    wire = make(executor="scripted", faults=[{"on": "exec", "what": what}])
    async with wire.fake:
        sandbox = await wire.create()
        async with wire.socket(sandbox["id"]) as socket:
            await socket.send_json({"code": 'x # sfusion:call=c1 prints="hello"'})
            ended = await socket.receive()
            assert ended.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), ended
            assert socket.close_code == code


async def test_a_client_that_leaves_a_socket_leaves_nothing_behind(make: Make) -> None:
    wire = make(executor="scripted")
    async with wire.fake:
        sandbox = await wire.create()
        socket = await wire.socket(sandbox["id"])
        await socket.close()
        await until(lambda: wire.fake.ledger.in_flight == 0)
        open_socket = await wire.socket(sandbox["id"])
    assert (await open_socket.receive()).type is not aiohttp.WSMsgType.TEXT


async def test_limits_are_those_of_the_model(make: Make) -> None:
    wire = make(model={"live": 1, "retry_after": "2s"})
    async with wire.fake:
        await wire.create(name="one")
        assert (await wire.send("POST", "/api/sandbox", json={}))[0] == 429
        assert (await wire.send("POST", "/api/sandbox", json={"name": "one"}))[0] == 409
    answered = [event for event in wire.events if event["event"] == "answered"]
    assert answered[1]["retry_after"] == "2"


async def test_admin_routes_show_the_sandboxes_and_a_reset_forgets_them(make: Make) -> None:
    wire = make()
    async with wire.fake:
        await wire.create(name="one")
        _, shown = await wire.send("GET", "/__sfusion/sandboxes")
        assert [one["name"] for one in shown["sandboxes"]] == ["one"]
        _, metrics = await wire.send("GET", "/__sfusion/metrics")
        assert "sfusion_sandboxes_orphaned 1" in metrics
        await wire.send("POST", "/__sfusion/reset")
        assert wire.fake.snapshot()["sandboxes"] == []


async def test_a_key_is_never_written_down(make: Make) -> None:
    wire = make()
    async with wire.fake:
        bearer = {"Authorization": "Bearer dtn_secret"}
        await wire.send("POST", "/api/sandbox", json={"env": {"K": "dtn_secret"}}, headers=bearer)
        assert "dtn_secret" not in repr((wire.events, wire.fake.snapshot(), wire.fake.state()))


async def test_what_is_not_a_request_of_the_api_is_answered(make: Make) -> None:
    wire = make()
    async with wire.fake:
        assert (await wire.send("GET", "/api/socket.io/?EIO=4&transport=polling"))[0] == 404
        json_type = {"Content-Type": "application/json"}
        for body in (b"[]", b"{", b"\xff"):
            found = await wire.send("POST", "/api/sandbox", data=body, headers=json_type)
            assert found[0] == 400
        sandbox = await wire.create()
        upload = f"/toolbox/{sandbox['id']}/files/bulk-upload"
        assert (await wire.send("POST", upload, data=b"x"))[0] == 400


async def test_a_proxy_in_front_loses_creates_and_sees_no_commands(make: Make) -> None:
    """The API is behind the proxy; the address of the toolbox in its answers is the service's."""
    lost = {"path": "/api/sandbox", "phase": "after", "times": 1, "what": {"status": 504}}
    wire = make(executor="scripted")
    async with wire.fake, FaultProxy(wire.fake.url, faults=[lost]) as proxy:
        create = f"{proxy.url}/api/sandbox"
        assert (await wire.send("POST", create, json={}))[0] == 504
        assert len(wire.fake.orphans()) == 1
        status, sandbox = await wire.send("POST", create, json={})
        assert status == 200
        assert sandbox["toolboxProxyUrl"] == f"{wire.fake.url}/toolbox"
        assert (await wire.send("DELETE", f"{create}/{sandbox['id']}"))[0] == 200


SPOKEN = {
    "echo ready": "ready\n",
    " /bin/echo 'all is well' ": "all is well\n",
    "printf nemo-rl-sandbox-ready": "nemo-rl-sandbox-ready",
    "printf 'ready\\n'": "ready\n",
    "print('ready')": "ready\n",
}
UNSPOKEN = ["echo $HOME", "echo a; rm b", "echo -n a", "echo 'a", "printf %s a", "print(1)", "ls"]


@pytest.mark.parametrize("executor", ["none", "scripted"])
async def test_plain_text_is_printed_where_no_code_runs(make: Make, executor: str) -> None:
    wire = make(executor=executor)
    async with wire.fake:
        sandbox = (await wire.create())["id"]
        for command, printed in SPOKEN.items():
            _, answer = await wire.execute(sandbox, command)
            assert (answer["exitCode"], answer["result"]) == (0, printed), command
        for command in UNSPOKEN:
            _, answer = await wire.execute(sandbox, command)
            expected = 127 if executor == "none" else 0
            assert answer["exitCode"] == expected, command
            assert (executor == "none") == bool(answer["result"]), command


async def test_a_script_or_a_hint_says_what_a_command_prints(make: Make) -> None:
    script = {"exact": "echo ready", "exit": 3}
    wire = make(scripts=[script])
    async with wire.fake:
        sandbox = (await wire.create())["id"]
        assert (await wire.execute(sandbox, "echo ready"))[1]["exitCode"] == 3
        assert (await wire.execute(sandbox))[1]["result"] == "hello"


def test_faults_and_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(FaultError, match="did you mean"):
        FakeDaytona(faults=[{"what": {"deth": "reset"}}])
    with pytest.raises(FaultError, match="sandbox_error applies only to Sandbox Fusion"):
        FakeDaytona(faults=[{"what": "sandbox_error"}])
    with pytest.raises(SandboxSetupError, match="model lifecycle"):
        FakeDaytona(model={"kind": "quota"})
    with pytest.raises(UnsafeBindError):
        FakeDaytona(host="0.0.0.0", executor="python")
    bound = [{"on": "create", "what": {"status": 503}}]
    for refuse in (lambda: FakeSandbox(faults=bound), lambda: _proxy(bound)):
        with pytest.raises(FaultError, match="`on` names"):
            refuse()


def _proxy(faults: Any) -> FaultProxy:
    return FaultProxy("http://127.0.0.1:1", faults=faults)
