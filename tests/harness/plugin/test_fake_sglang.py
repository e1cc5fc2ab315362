"""The pytest fixtures provide working servers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy
from tests.patience import PATIENCE


def ask(url: str, text: str = "Hi") -> Any:
    data = json.dumps({"text": text}).encode()
    request = urllib.request.Request(f"{url}/generate", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def test_the_fixture_solves_word_problems_by_default(fake_sglang: FakeSGLangServer) -> None:
    assert "I do not know how to solve this." in ask(fake_sglang.url)["text"]
    assert fake_sglang.ledger.requests == 1


@pytest.mark.parametrize(
    "fake_sglang", [{"policy": ScriptedPolicy(["Good day"]), "seed": 3}], indirect=True
)
def test_the_fixture_takes_a_policy_and_options(fake_sglang: FakeSGLangServer) -> None:
    assert ask(fake_sglang.url)["text"] == "Good day"


def test_synchronous_code_can_set_faults_and_crash_the_server(
    fake_sglang: FakeSGLangServer,
) -> None:
    fake_sglang.set_faults([{"first": 1, "what": {"status": 503}}])
    with pytest.raises(urllib.error.HTTPError, match="503"):
        ask(fake_sglang.url)
    assert ask(fake_sglang.url)["text"]
    fake_sglang.crash()
    with pytest.raises(urllib.error.URLError):
        ask(fake_sglang.url)


def test_the_factory_starts_any_number_of_servers(
    make_fake_sglang: Callable[..., FakeSGLangServer],
) -> None:
    one, two = make_fake_sglang(ScriptedPolicy(["one"])), make_fake_sglang(ScriptedPolicy(["two"]))
    assert [ask(one.url)["text"], ask(two.url)["text"]] == ["one", "two"]
