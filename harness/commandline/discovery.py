"""Which commands there are: found by their files, and imported only when they are used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HARNESS = Path(__file__).parent.parent
_FIRST_LINE = re.compile(r'"""``sfusion ([a-z ]+)``: (.+?)(?:""")?\n')
_PANELS = {
    "lab": "Scenarios",
    "search": "Searching for failures",
    "trial": "Judging a client",
    "studies": "Studies of runs and logs",
    "learning": "What training learns",
    "real": "A real sandbox",
    "rollouts": "Rollouts",
    "serving": "Servers for any client, and the limiter",
}
"""The floors of the harness in the order of the help."""


@dataclass(frozen=True)
class FoundCommand:
    """A command, as the first line of its module describes it."""

    name: str
    """As it is typed; two words for a command of a group."""
    about: str
    module: str
    panel: str


@cache
def found_commands() -> dict[str, FoundCommand]:
    """Return every command, in the order of the help.

    Commands are the modules called ``command.py`` or in a folder ``commands`` whose first line is
    ``sfusion NAME`` in double backticks, a colon and what it does. Nothing is imported to find them.
    """
    found = []
    for file in (*_HARNESS.rglob("command.py"), *_HARNESS.rglob("commands/*.py")):
        with file.open(encoding="utf-8") as opened:
            first = _FIRST_LINE.fullmatch(opened.readline())
        if first is None:
            continue
        place = file.relative_to(_HARNESS).with_suffix("")
        about = first[2][0].upper() + first[2][1:]
        panel = _PANELS.get(place.parts[0], "Others")
        found.append(FoundCommand(first[1], about, ".".join(("sfusion.harness", *place.parts)), panel))
    panels = [*_PANELS.values(), "Others"]
    found.sort(key=lambda one: (panels.index(one.panel), one.name))
    return {one.name: one for one in found}
