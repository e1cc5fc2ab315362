"""Reads the fenced blocks of a Markdown page and the comments before them.

``<!-- snippet: not run: REASON -->`` excludes the block that follows. ``<!-- snippet: file NAME
-->`` saves the block as a file for the commands of the page; the reader sees it, perhaps folded
(``<details>``). ``<!-- snippet: add to FILE -->`` appends the block to a file of the repository,
``add to FILE after TEXT`` inserts it after the first line that begins with TEXT, ``add to FILE
before TEXT`` before it; docs/extending.md uses these three, and runs in a copy of the repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_COMMENT = re.compile(r"<!-- snippet: (.*?)\s*-->", re.DOTALL)
_FENCE = re.compile(r"^( *)(```+)(\w*)[^\n]*\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
_NOT_RUN, _FILE, _ADD = "not run: ", "file ", "add to "


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    """Why it cannot be run here."""
    adds_to: str = ""
    """``FILE``, ``FILE after TEXT`` or ``FILE before TEXT``; empty if it is not added to a file."""
    shows: str | None = None
    """The expected output: the text block that directly follows a program or commands."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """The blocks of a page in order, and the files that they use."""

    name: str
    blocks: tuple[Block, ...]
    files: dict[str, str]


def read_page(path: Path, root: Path) -> Page:
    """Read a page; raise ValueError for an unknown ``snippet:`` comment, or one that hides a
    file."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
    files: dict[str, str] = {}
    blocks: list[Block] = []
    fences = list(_FENCE.finditer(text))
    for comment in _COMMENT.finditer(text):
        if not comment[1].startswith((_NOT_RUN, _FILE, _ADD)) or "\n" in comment[1]:
            wanted = "`not run: REASON`, `file NAME` or `add to FILE` on one line"
            raise ValueError(f"{name}: `<!-- snippet: {comment[1]} -->` is not one of {wanted}")
    for place, fence in enumerate(fences):
        instruction = _instruction(text[fences[place - 1].end() if place else 0 : fence.start()])
        body = re.sub(rf"^{fence[1]}", "", fence[4], flags=re.MULTILINE)
        if instruction.startswith(_FILE):
            files[instruction.removeprefix(_FILE)] = body
        following = fences[place + 1] if place + 1 < len(fences) else None
        shows = None
        if (
            following is not None
            and following[3] == "text"
            and not text[fence.end() : following.start()].strip()
        ):
            shows = following[4]
        line = text.count("\n", 0, fence.start()) + 1
        reason = instruction.removeprefix(_NOT_RUN) if instruction.startswith(_NOT_RUN) else ""
        adds_to = instruction.removeprefix(_ADD) if instruction.startswith(_ADD) else ""
        blocks.append(Block(name, line, fence[3], body, reason, adds_to, shows))
    return Page(name, tuple(blocks), files)


def _instruction(between: str) -> str:
    """The comment directly before a block; empty if there is none."""
    comments = list(_COMMENT.finditer(between))
    return "" if not comments or between[comments[-1].end() :].strip() else comments[-1][1]
