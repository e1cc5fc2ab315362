"""Learning from the logs that the real tool and a sandbox in its own process write."""

from __future__ import annotations

from pathlib import Path

from benchmarks.learn_round_trips import learned_from, play
from sfusion.harness.lab.scenarios import parse_scenarios

PRODUCTION = """
scenario: flaky
about: >-
  A third of the requests get a 502, and some calls are malformed. Nothing here depends on how fast
  the machine is.
tools: {max_attempts: 1}
sandbox: {faults: [{name: flaky, probability: 0.33, what: {status: 502}}]}
load:
  calls: 120
  concurrency: 6
  program: [{share: 5, seconds: 5ms}, {share: 1, arguments: {cod: "print(1)"}}]
promises: [every_call_ends_once]
"""


def test_the_logs_of_the_tool_and_of_the_sandbox_name_the_cause(tmp_path: Path) -> None:
    (scenario,) = parse_scenarios(PRODUCTION)
    play(scenario, tmp_path)
    for log in ("tool", "sandbox"):
        learned, checked = learned_from(tmp_path / log, "flaky")
        causes = {cause.kind: cause for cause in learned.causes}
        assert {"status_502", "status_502_burst"} & set(causes)
        outcomes = [row for row in checked.rows if row.name in learned.figures.outcomes]
        assert outcomes
        assert all(row.agrees for row in outcomes), outcomes
        assert ("malformed_calls" in causes) == (log == "tool"), "these never reach a sandbox"
    assert "code is missing" in learned_from(tmp_path / "tool", "flaky")[0].programs[-1].why
