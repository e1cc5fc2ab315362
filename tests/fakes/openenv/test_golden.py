"""The fake answers as OpenEnv's real server was recorded to (openenv-core 0.3.0)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfusion.fakes.openenv import FakeOpenEnv
from tests.fakes.openenv.real_server import CAPACITY, GOLDEN, real_server, record

_SCRIPTS = [{"exact": "raise", "sandbox_error": "the environment is broken"}]


def golden() -> Any:
    return json.loads(GOLDEN.read_text())


async def test_the_fake_answers_as_the_real_server() -> None:
    model = {"live": CAPACITY}
    async with FakeOpenEnv(executor="scripted", scripts=_SCRIPTS, model=model) as fake:
        answers = await record(fake.url)
    for name, expected in golden()["conversations"].items():
        assert answers["conversations"][name] == expected, name
    assert answers["full"] == golden()["full"]
    assert answers["pages"] == golden()["pages"]


async def test_the_real_server_still_answers_as_it_was_recorded() -> None:
    pytest.importorskip("openenv", reason="needs openenv-core: tox -e lifecycle")
    with real_server() as url:
        assert await record(url) == golden()
