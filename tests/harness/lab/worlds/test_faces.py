"""Every service that a scenario may name is played: its variables are set and its events seen."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

from sfusion.harness.lab.episodes import EpisodeTask
from sfusion.harness.lab.promises import RunEvents
from sfusion.harness.lab.promises.registry import check_run
from sfusion.harness.lab.scenarios import parse_scenarios
from sfusion.harness.lab.worlds.episodes import play_episodes

TEXT = """
scenario: e2b-episodes
about: Episodes in sandboxes of E2B.
sandbox:
  face: e2b
  faults:
    - {name: lost, on: create, first: 1, phase: after, what: {status: 504}}
episodes: {count: 2, concurrency: 1, settle: 0}
"""


def test_creates_of_e2b_that_are_sent_again_leave_an_orphan() -> None:
    (scenario,) = parse_scenarios(TEXT, file="<test>")

    def create(task: EpisodeTask) -> Any:
        body = json.dumps({"templateID": "base", "timeout": 3600, "metadata": task.labels})
        headers = {"Content-Type": "application/json", "X-API-Key": os.environ["E2B_API_KEY"]}
        url = f"{os.environ['E2B_API_URL']}/v2/sandboxes"
        request = urllib.request.Request(url, data=body.encode(), headers=headers)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())["sandboxID"]

    def play(task: EpisodeTask) -> None:
        try:
            sandbox = create(task)
        except OSError:  # as the SDK does: again, without a key that tells the two apart
            sandbox = create(task)
        url = f"{os.environ['E2B_API_URL']}/sandboxes/{sandbox}"
        headers = {"X-API-Key": os.environ["E2B_API_KEY"]}
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE", headers=headers))

    journal = play_episodes(scenario, "wall", play)
    verdicts, _ = check_run(RunEvents(journal), [])
    found = {verdict.promise: verdict.sentence for verdict in verdicts if verdict.state == "broken"}
    assert set(found) == {"no_orphan_after_lost_create", "create_once"}, found
    assert "2 sandboxes" in found["create_once"]
