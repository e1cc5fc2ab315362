"""What a worker of xdist gets at a time: a group of tests, or all tests of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from xdist.scheduler import LoadGroupScheduling

LONGEST = (
    "tests/docs/test_snippets.py",
    "tests/proof/test_trial_proof.py",
    "tests/proof/test_proof.py",
    "tests/docs/test_extending.py",
)
"""Files that take longer than half a minute alone: one that begins as the last keeps one worker
busy while the others have nothing left. Measured by processor time, 13 to 75 s."""


class GroupsAndFiles(LoadGroupScheduling):
    """The longest files and groups first, groups with most tests before others; then files in
    their order.

    A file on one worker sets up what its tests share once. xdist would send each test on its own
    and, for each, count all that it ever sent: for thousands of tests, that alone is a quarter of a
    minute of processor time.
    """

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).split("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        first = longest_of(self.workqueue)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def longest_of(units: Mapping[str, Sized]) -> str | None:
    """Return the file or group to begin with; None if only files are left that take no time."""
    for name in LONGEST:
        if name in units:
            return name
    groups = [name for name in units if not name.endswith(".py")]
    return max(groups, key=lambda name: len(units[name]), default=None)
