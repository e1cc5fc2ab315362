"""``sfusion serve daytona``, ``openenv`` and ``e2b``, and the fixtures of the same fakes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.warm import warm

CREATES = {"daytona": "/api/sandbox", "e2b": "/v2/sandboxes"}


def post(url: str) -> Any:
    request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


@pytest.mark.parametrize("face", ["daytona", "openenv", "e2b"])
def test_a_fake_is_served_until_it_is_interrupted(face: str, tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {on: create, after: 1, phase: after, what: {status: 504}}\n")
    journal = tmp_path / "journal.ndjson"
    options = ["--port", "0", "--model", "{live: 3}", "--faults", faults, "--journal", journal]
    command = [warm("sfusion"), "serve", face, *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        while "admin:" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        url = re.findall(r"http://[0-9.:]+", said)[0]
        assert f"={url}" in said
        assert "1 fault rule" in said
        if face in CREATES:
            post(url + CREATES[face])
            with pytest.raises(urllib.error.HTTPError, match="504"):
                post(url + CREATES[face])
        with urllib.request.urlopen(f"{url}/__sfusion/sandboxes") as response:
            assert json.load(response)["orphans"] == (2 if face in CREATES else 0)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
    events = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    assert events.count("sandbox_created") == (2 if face in CREATES else 0)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--model", "{lives: 3}"], "did you mean 'live'"),
        (["--executor", "pyton"], "did you mean 'python'"),
        (["--scripts", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], wrong: str) -> None:
    command = [warm("sfusion"), "serve", "daytona", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert wrong in done.stderr


@pytest.mark.parametrize("fake_daytona", [{"model": {"boot": "1h"}}], indirect=True)
def test_the_fixtures_set_the_variables_of_the_sdks(
    fake_daytona: Any, fake_openenv: Any, fake_e2b: Any
) -> None:
    assert os.environ["DAYTONA_API_URL"] == f"{fake_daytona.url}/api"
    assert os.environ["OPENENV_BASE_URL"] == fake_openenv.url
    assert os.environ["E2B_API_URL"] == os.environ["E2B_SANDBOX_URL"] == fake_e2b.url
    assert post(os.environ["DAYTONA_API_URL"] + "/sandbox")["state"] == "creating"
