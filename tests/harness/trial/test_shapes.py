"""Every shape of a client is found by looking at it and by first calls; what cannot be judged is
refused at once."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sfusion.harness.errors import BadOption, MissingWorld
from sfusion.harness.lab.client import Returned, Settings, TrialAsk
from sfusion.harness.lab.shapes import Adapter, returned_from, shape_of
from sfusion.harness.lab.shapes.function import FunctionClient, Surroundings
from tests.cases import every

CLIENTS = Path(__file__).parent / "clients"
SHAPES = f"{CLIENTS / 'shapes.py'}:"
FUNCTION = "code concurrent raises text "
ANSWER = FUNCTION
SDK = ANSWER + "language stdin files timeout default_timeout compile_timeout"
TOOL = (
    "arguments cancel code compile_timeout concurrent deadline default_timeout headers "
    "instances language "
    "memory rate_limit reward text timeout urls"
)

THREADED = "a function, synchronous, called in threads"
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    SHAPES + "by_environment": ({}, THREADED, FUNCTION, ""),
    SHAPES + "by_other_name": ({"env": "MY_SANDBOX"}, THREADED, FUNCTION, ""),
    SHAPES + "at_import": ({}, THREADED, FUNCTION, ""),
    SHAPES + "by_attribute": ({"attribute": "ADDRESS"}, THREADED, FUNCTION, ""),
    SHAPES + "whole_address": (
        {},
        THREADED,
        ANSWER + "language timeout default_timeout",
        "/run_code",
    ),
    SHAPES + "timeout_of_its_own": ({}, THREADED, ANSWER + "timeout_unsent", ""),
    SHAPES + "asynchronous": (
        {},
        "a function, asynchronous",
        FUNCTION + "cancel language stdin",
        "",
    ),
    SHAPES + "Runner": (
        {},
        "a class, synchronous, called in threads",
        ANSWER + "language memory",
        "",
    ),
    SHAPES + "Pool": ({}, "a class, synchronous, called in threads", ANSWER + "urls", ""),
    SHAPES + "compute_score": (
        {},
        "a reward function, synchronous, called in threads",
        "concurrent memory raises reward tests",
        "/run_code",
    ),
    "sandbox_fusion:run_code": ({}, THREADED, SDK, ""),
    "sandbox_fusion:run_code_async": ({}, "a function, asynchronous", SDK + " cancel", ""),
    "sfusion_tools.sandbox_fusion_tools:SandboxFusionTool": (
        {},
        "a tool class with verl's interface",
        TOOL,
        "/run_code",
    ),
}


@every(CASES.items(), lambda case: case[0])
def test_every_shape_is_recognised(case: tuple[str, tuple[dict[str, Any], str, str, str]]) -> None:
    target, (options, about, takes, route) = case
    shape = shape_of(target, **options)
    assert (shape.about, sorted(shape.takes)) == (about, sorted(takes.split()))
    assert getattr(shape.make(), "route", "") == route


REFUSED = {
    SHAPES + "unknown_parameter": "it is not known what to pass for `flavour`",
    SHAPES + "hidden_parameters": "its parameters cannot be seen: it takes (*args, **kwargs)",
    SHAPES + "sends_nothing": (
        "a first call sent nothing to the address that it was given. It returned 'done'"
    ),
    SHAPES + "HalfATool": "looks like a tool of verl's, but has no calc_reward(), release()",
    SHAPES
    + "NotAClient": "give a function, or one of run, run_code, execute, __call__ as a method",
    SHAPES + "NUMBER": "is a int, which cannot be called",
    SHAPES + "Runer": "did you mean 'Runner'?",
    str(CLIENTS / "absent.py:run"): "there is no such file",
    "no_such_module:run": (
        "importing no_such_module failed: No module named 'no_such_module'; "
        "run this in the folder of the module"
    ),
    "shapes.run": "give a function or class as module:name or file.py:name",
}


@every(REFUSED.items(), lambda case: case[0])
def test_what_cannot_be_judged_is_refused_before_anything_is_played(case: tuple[str, str]) -> None:
    with pytest.raises(BadOption) as caught:
        shape_of(case[0])
    assert case[1] in str(caught.value)


def test_a_client_whose_imports_are_not_installed_is_told_where_to_install_them(
    tmp_path: Path,
) -> None:
    client = tmp_path / "client.py"
    client.write_text("import no_such_package.part\n\ndef run(code, url): ...\n")
    with pytest.raises(BadOption) as caught:
        shape_of(f"{client}:run")
    assert f"{sys.executable} -m pip install no_such_package" in str(caught.value)


def test_a_command_shows_what_it_carries() -> None:
    glue = (
        "import json, os, sys, urllib.request as r\n"
        "for line in sys.stdin:\n"
        "    ask = json.loads(line)\n"
        "    body = {'code': ask['code'], 'language': ask['language'], 'run_timeout': 30}\n"
        "    url = os.environ['SANDBOX_FUSION_URL'] + '/run_code'\n"
        "    kind = {'Content-Type': 'application/json'}\n"
        "    made = r.Request(url, json.dumps(body).encode(), kind)\n"
        "    text = json.load(r.urlopen(made))['run_result']['stdout']\n"
        "    print(json.dumps({'call': ask['call'], 'text': text}), flush=True)\n"
    )
    shape = shape_of(None, command=(sys.executable, "-c", glue))
    assert (sorted(shape.takes), shape.wall) == (
        ["code", "language", "raises", "text"],
        "it is another process",
    )
    with pytest.raises(MissingWorld, match="no-such-command"):
        shape_of(None, command=("no-such-command",))


def test_a_users_adapter_is_taken_as_it_is() -> None:
    class Mine(Adapter):
        can_take = ("code", "text", "language")

        async def call(self, ask: TrialAsk) -> Returned:
            return Returned("")

    class Unfinished(Adapter):
        pass

    with pytest.raises(BadOption, match="Unfinished is an adapter without `async def call"):
        shape_of(Unfinished)
    shape = shape_of(Mine)
    assert shape.takes == {"code", "text", "language"}
    assert isinstance(shape.make(), Mine)


def test_an_object_that_changes_what_it_was_made_with_is_told() -> None:
    class Runner:
        def __init__(self, url: str, headers: dict[str, str]) -> None:
            headers.setdefault("Accept", "application/json")

        async def run(self, code: str) -> str:
            return ""

    async def returned() -> Returned:
        client = FunctionClient(Runner, "Runner", Surroundings((), None))
        await client.begin(Settings(("http://sandbox.invalid",), {"Authorization": "Bearer one"}))
        return await client.call(TrialAsk("one"))

    changed = (
        "{'Authorization': 'Bearer one'} became "
        "{'Authorization': 'Bearer one', 'Accept': 'application/json'}"
    )
    assert asyncio.run(returned()).altered == changed


def test_a_client_that_ends_leaves_the_others_their_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`requests` reads all of the environment at each request, and fails if a variable goes."""
    monkeypatch.delenv("MY_SANDBOX", raising=False)
    surroundings = Surroundings(("MY_SANDBOX",), None)

    async def run(code: str) -> None: ...

    async def play() -> list[str | None]:
        clients = [FunctionClient(run, "run", surroundings) for _ in range(2)]
        seen = []
        for number, client in enumerate(clients):
            await client.begin(Settings((f"http://sandbox-{number}.invalid",)))
        for client in clients:
            seen.append(os.environ.get("MY_SANDBOX"))
            await client.end()
        return [*seen, os.environ.get("MY_SANDBOX")]

    last = "http://sandbox-1.invalid"
    assert asyncio.run(play()) == [last, last, None]


def test_a_structured_result_is_text_and_fields() -> None:
    run = {"status": "Finished", "stdout": "  a\n\nb", "return_code": 3, "execution_time": 0.5}
    returned = returned_from(
        {"status": "Failed", "run_result": run, "compile_result": {"return_code": 0}}
    )
    assert returned.text == (
        "status:\nFailed\nrun_result.status:\nFinished\nrun_result.stdout:\n  a\n\nb\n"
        "run_result.return_code: 3\n"
        "compile_result.return_code: 0"
    )
    assert (returned.fields["return_code"], returned.fields["compile_result.return_code"]) == (3, 0)
    assert "status" not in returned.fields
    assert "status" not in returned_from({"status": "Failed", "run_result": None}).fields
    assert returned_from({"status": "late", "output": "x"}).fields["status"] == "late"
    assert returned_from((0.5, [{"error": "lost"}])).reward == 0.5
