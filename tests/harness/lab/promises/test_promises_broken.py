"""For each promise, break the real component that keeps it: this promise is found broken, and no
unrelated one.

The tests are in the modules ``test_*_broken.py`` of this folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from sfusion.harness.lab.promises import PROMISES
from sfusion.harness.lab.worlds import sim
from tests.harness.lab.promises.scenes import scene, verdicts
from tests.harness.lab.worlds.test_episodes import MISTAKES
from tests.proof.changes import CHANGES


def _tested() -> set[str]:
    """The promises that tests break: those of episodes are cases of one test, and the proof plays
    each change to our own stack."""
    modules = Path(__file__).parent.glob("test_*_broken.py")
    of_episodes = {mistake.promise for mistake in MISTAKES}
    of_changes = {change.promise for change in CHANGES.values()}
    return (
        of_episodes
        | of_changes
        | {
            name
            for module in modules
            for name in re.findall(r"^def test_(\w+)", module.read_text(), re.MULTILINE)
        }
    )


def test_every_promise_is_held_when_nothing_is_broken() -> None:
    found = verdicts(sim.run(scene()))
    assert not [verdict for verdict in found.values() if verdict.state == "broken"]
    assert {name for name, verdict in found.items() if verdict.state == "unknown"} == {
        "retry_after_honoured",
        "partial_output_kept",
        "no_secret_leaked",
        "infra_never_scored",
        "recovers_within",
        "only_transient_retried",
        "retries_spread",
        "no_permit_while_backing_off",
        "output_bounded",
        "cuts_marked",
        "stderr_shown",
        "no_dead_connection_used",
        "requests_paced",
    }


def test_every_promise_has_a_test_that_breaks_it() -> None:
    assert not set(PROMISES) - _tested()
