"""What a worker of xdist gets at a time: a group of tests, or all tests of a file."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class GroupsAndFiles(LoadGroupScheduling):
    """Groups first, because they are the longest, those with most tests before others; then files
    in their order.

    A file on one worker sets up what its tests share once. xdist would send each test on its own
    and, for each, count all that it ever sent: for thousands of tests, that alone is a quarter of a
    minute of processor time.
    """

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).split("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        groups = [name for name in self.workqueue if not name.endswith(".py")]
        if groups:
            self.workqueue.move_to_end(
                max(groups, key=lambda name: len(self.workqueue[name])), last=False
            )
        super()._assign_work_unit(node)
