"""Random access to the lines of a file that may be too large to load."""

from __future__ import annotations

from array import array
from pathlib import Path
from threading import Lock
from weakref import finalize

from sfusion_tools.bounded_input import MAX_LINE

_BLOCK = 1 << 20


class LineIndex:
    """The offset of every line, eight bytes each, found block by block.

    Lines can be read as soon as they are indexed, also while another thread extends the index.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._ends = array("Q")
        self._scanned = 0
        self._extending = Lock()
        self._reading = Lock()
        # Held open: a filter reads every line of a big file.
        self._file = path.open("rb")
        finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def scanned(self) -> int:
        """Number of bytes indexed so far."""
        return self._scanned

    @property
    def is_complete(self) -> bool:
        return self._scanned >= self.size

    def extend(self, blocks: int = 1) -> bool:
        """Index the next blocks; return False if the file was indexed completely before."""
        with self._extending, self.path.open("rb") as file:
            if self.is_complete:
                return False
            file.seek(self._scanned)
            for _ in range(blocks):
                block = file.read(_BLOCK)
                found = array("Q")
                at = block.find(b"\n")
                while at >= 0:
                    found.append(self._scanned + at + 1)
                    at = block.find(b"\n", at + 1)
                self._ends.extend(found)
                self._scanned = self._scanned + len(block) if block else self.size
                if self.is_complete:
                    self._add_last_line()
                    break
        return True

    def extend_to(self, line: int) -> bool:
        """Index as far as this line; return False if the file has fewer lines."""
        while line >= len(self) and self.extend():
            pass
        return line < len(self)

    def read(self, line: int) -> bytes:
        """Return an indexed line without its line break; of one longer than ``MAX_LINE``, one byte more than that."""
        start = self._ends[line - 1] if line else 0
        with self._reading:
            self._file.seek(start)
            return self._file.read(min(self._ends[line] - start, MAX_LINE + 1)).rstrip(b"\r\n")

    def _add_last_line(self) -> None:
        """Add the last line if it does not end with a line break."""
        if self.size and (not self._ends or self._ends[-1] < self.size):
            self._ends.append(self.size)
