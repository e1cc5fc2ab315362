"""The fenced blocks of a Markdown page, with what hidden comments before them say.

``<!-- snippet: not run: REASON -->`` before a block says why it cannot be run here. ``<!-- snippet: file NAME -->``
saves the block for the commands of the page; with text behind the name, the comment itself is the file.
``<!-- snippet: add to FILE -->`` appends the block to a file of the repository, ``add to FILE after TEXT`` inserts it
behind the line that begins with TEXT: the worked examples of CONTRIBUTING.md, tried in a copy of the repository.
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
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    """Why it cannot be run here."""
    adds_to: str = ""
    """The file that it is added to, and where: ``FILE`` or ``FILE after TEXT``."""
    shows: str | None = None
    """What the page says it prints: the text block right behind a program."""

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page: its blocks in order, and the files that they use."""

    name: str
    blocks: tuple[Block, ...]
    files: dict[str, str]


def read_page(path: Path, root: Path) -> Page:
    """Read a page; a comment for this module that it does not understand is an error."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
    files: dict[str, str] = {}
    blocks: list[Block] = []
    fences = list(_FENCE.finditer(text))
    for comment in _COMMENT.finditer(text):
        first, _, rest = comment[1].partition("\n")
        if not first.startswith((_NOT_RUN, _FILE, _ADD)):
            wanted = "`not run: REASON`, `file NAME` or `add to FILE`"
            raise ValueError(f"{name}: `<!-- snippet: {first} -->` is not one of {wanted}")
        if first.startswith(_FILE) and rest:
            files[first.removeprefix(_FILE)] = rest + "\n"
    for place, fence in enumerate(fences):
        said = _said(text[fences[place - 1].end() if place else 0 : fence.start()])
        body = re.sub(rf"^{fence[1]}", "", fence[4], flags=re.MULTILINE)
        if said.startswith(_FILE):
            files[said.removeprefix(_FILE)] = body
        following = fences[place + 1] if place + 1 < len(fences) else None
        shows = None
        if following is not None and following[3] == "text" and not text[fence.end() : following.start()].strip():
            shows = following[4]
        line = text.count("\n", 0, fence.start()) + 1
        reason = said.removeprefix(_NOT_RUN) if said.startswith(_NOT_RUN) else ""
        adds_to = said.removeprefix(_ADD) if said.startswith(_ADD) else ""
        blocks.append(Block(name, line, fence[3], body, reason, adds_to, shows))
    return Page(name, tuple(blocks), files)


def _said(between: str) -> str:
    """What a comment right before a block says; one that is a file itself says nothing of the block."""
    comments = list(_COMMENT.finditer(between))
    if not comments or between[comments[-1].end() :].strip() or "\n" in comments[-1][1]:
        return ""
    return comments[-1][1]
