"""Files that would be counted twice: given twice, by another name, or as a compressed copy."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

_PIECE = 2**20
_TRAILER = 8
"""Bytes at the end of a gzip file: the CRC-32 and the size of what it holds."""


def repeats(files: Sequence[Path]) -> dict[int, str]:
    """Return the places in the list that need not be read, with the reason."""
    found: dict[int, str] = {}
    first: dict[tuple[int, int], Path] = {}
    for place, file in enumerate(files):
        try:
            facts = file.stat()
        except OSError:
            continue
        inode = facts.st_dev, facts.st_ino
        if inode in first:
            found[place] = f"{file}: the same file as {first[inode]}, read once"
        first.setdefault(inode, file)
    rest = {place: file for place, file in enumerate(files) if place not in found}
    by_name: dict[str, list[Path]] = {}
    for file in rest.values():
        by_name.setdefault(file.name, []).append(file)
    for place, file in rest.items():
        copied = [other for other in by_name.get(file.stem, ()) if file.suffix == ".gz" and _is_copy(file, other)]
        if copied:
            found[place] = f"{file}: the same lines as {copied[0]}, read once"
    return found


def _is_copy(packed: Path, plain: Path) -> bool:
    """Does a gzip file hold this file? Its own checksum tells, without unpacking it."""
    try:
        with packed.open("rb") as file:
            if file.read(2) != b"\x1f\x8b" or packed.stat().st_size <= _TRAILER:
                return False
            file.seek(-_TRAILER, 2)
            trailer = file.read()
        if int.from_bytes(trailer[4:], "little") != plain.stat().st_size % 2**32:
            return False
        crc = 0
        with plain.open("rb") as file:
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
    except OSError:
        return False
    return crc == int.from_bytes(trailer[:4], "little")
