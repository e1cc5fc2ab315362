"""How often each of the things was seen that were seen last.

A server runs for weeks, and clients choose how many different things they ask for.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

LONGEST_NAME = 200
"""Characters of a name that is kept as it is; of a longer one, only a digest (chosen)."""


class RecentCounts:
    """Counts by name; the name that was new longest ago is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()
        self.forgotten = 0
        """How many names were forgotten."""

    def add(self, name: str) -> int:
        """Count a name once more; return how often it was seen."""
        if len(name) > LONGEST_NAME:
            name = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        count = self._counts.get(name, 0) + 1
        if count == 1 and len(self._counts) >= self._most:
            self._counts.popitem(last=False)
            self.forgotten += 1
        self._counts[name] = count
        return count
