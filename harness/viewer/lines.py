"""Random access to the lines of a file that may be too big to load: only the offsets are kept."""

from __future__ import annotations

from array import array
from pathlib import Path
from threading import Lock
from weakref import finalize

_BLOCK = 1 << 20


class LineIndex:
    """Where every line of a file begins; it grows block by block, and what is known can be read meanwhile.

    Eight bytes a line are kept. Threads may extend the index while others read lines.
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
        """Bytes looked at so far."""
        return self._scanned

    @property
    def is_complete(self) -> bool:
        """True when the whole file was looked at."""
        return self._scanned >= self.size

    def extend(self, blocks: int = 1) -> bool:
        """Look at some more of the file; False when there was nothing left to look at."""
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
                    self._close()
                    break
        return True

    def extend_to(self, line: int) -> bool:
        """Look until this line is known; False when the file ends before it."""
        while line >= len(self) and self.extend():
            pass
        return line < len(self)

    def read(self, line: int) -> bytes:
        """The bytes of one known line, without its end."""
        start = self._ends[line - 1] if line else 0
        with self._reading:
            self._file.seek(start)
            return self._file.read(self._ends[line] - start).rstrip(b"\r\n")

    def _close(self) -> None:
        """A last line without a newline is a line as well."""
        if self.size and (not self._ends or self._ends[-1] < self.size):
            self._ends.append(self.size)
