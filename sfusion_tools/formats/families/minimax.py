"""MiniMax M3: a namespace token before every tag.

The keys of arguments are tags, also inside objects and lists.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.formats.argumenttext import SectionParser
from sfusion_tools.formats.format import Format
from sfusion_tools.formats.jsontext import ENOUGH, TOO_DEEP, Flaw, Loaded, dump
from sfusion_tools.formats.rawvalue import read_value, write_value
from sfusion_tools.formats.streamparser import NAMELESS
from sfusion_tools.formats.text_reader import Scan
from sfusion_tools.formats.toolbox import Toolbox

SPACE = "]<]minimax[>["
_TAG = re.compile(r"<(/?)([^<>]+)>")
_ITEM = "item"
_NESTED = frozenset({"array", "object"})


class MiniMaxM3Parser(SectionParser):
    """Reads a call once it is complete: the namespace token cannot be part of a value."""

    section = (f"{SPACE}<tool_call>", f"{SPACE}</tool_call>")
    tags = (f'{SPACE}<invoke name="', f"{SPACE}</invoke>")
    separator = '">'
    silent = (section[1], "[e~[")
    think_marks = ("<mm:think>", "</mm:think>")

    def headed(self, head: str, start: int) -> Scan[None]:
        name = head.strip() or None
        text, edge = yield from self.to_edge()
        self.cut_inside = edge is None
        begin, end = self.tags
        raw = f"{begin}{head}{self.separator}{text}"
        if edge == end:
            raw += end
        read: Loaded | Flaw
        if edge is None:
            read = Flaw("truncated", f"the text ends before its {end}")
        elif edge != end:
            read = Flaw("bad_layout", f"its {end} is missing")
        elif name is None:
            read = NAMELESS
        else:
            read = _read(text, name, self.tools)
        self.call(name, read, position=start, raw=raw)


@dataclass
class _Element:
    """What was read of an argument, or of a part of one."""

    path: tuple[str, ...]
    text: str = ""
    parts: list[tuple[str, Any]] = field(default_factory=list)

    def value(self, name: str, tools: Toolbox) -> Loaded | Flaw:
        """Return the value, as the schema of tool ``name`` declares it."""
        types = tools.types(name, *self.path) if self.path else frozenset({"object"})
        return self._composed(types) if self.parts else self._plain(types)

    def _plain(self, types: frozenset[str]) -> Loaded | Flaw:
        """Return a value without tags in it."""
        may_be_nested = "string" not in types and not types.isdisjoint(_NESTED)
        if not self.text.strip() and may_be_nested:
            return Loaded([] if "array" in types else {})
        return read_value(self.text, types, ".".join(self.path))

    def _composed(self, types: frozenset[str]) -> Loaded | Flaw:
        """Return a list or an object."""
        if types and types.isdisjoint(_NESTED):
            wanted = " or ".join(sorted(types))
            message = f"its parameter {'.'.join(self.path)} must be {wanted}, found tags"
            return Flaw("bad_value", message)
        keys = [key for key, _ in self.parts]
        if types != {"object"} and set(keys) == {_ITEM}:
            return Loaded([value for _, value in self.parts])
        if len(set(keys)) < len(keys):
            ((key, _),) = Counter(keys).most_common(1)
            return Flaw("duplicate_key", f"it has the key {key} twice")
        return Loaded(dict(self.parts))


def _read(text: str, name: str, tools: Toolbox) -> Loaded | Flaw:
    """Read the arguments of a call, or return what is wrong with them."""
    before, *pieces = text.split(SPACE)
    elements = [_Element((), before)]
    for piece in pieces:
        tag = _TAG.match(piece)
        if tag is None:
            return Flaw("bad_layout", f"{SPACE} in it is not followed by a tag")
        slash, key = tag.groups()
        rest = piece[tag.end() :]
        flaw = _close(elements, key, rest, name, tools) if slash else _open(elements, key, rest)
        if flaw:
            return flaw

    if len(elements) > 1:
        key = elements[-1].path[-1]
        return Flaw("bad_layout", f"its parameter {key} is not closed by {SPACE}</{key}>")
    if before.strip():
        return Flaw("bad_layout", f"there is text before its arguments ({before.strip()[:40]!r})")
    return elements[0].value(name, tools)


def _open(elements: list[_Element], key: str, rest: str) -> Flaw | None:
    """Begin an element inside the last one; return what is wrong with that."""
    outer = elements[-1]
    stray = outer.text.strip()
    if stray:
        return Flaw("bad_layout", f"there is text before <{key}> ({stray[:40]!r})")
    if len(elements) > ENOUGH:
        return TOO_DEEP
    elements.append(_Element((*outer.path, key), rest))
    return None


def _close(elements: list[_Element], key: str, rest: str, name: str, tools: Toolbox) -> Flaw | None:
    """End the last element and add it to the one around it; return what is wrong with it."""
    if len(elements) == 1 or elements[-1].path[-1] != key or rest.strip():
        return Flaw(
            "bad_layout", f"there is a </{key}> in it that closes nothing, or text after it"
        )
    read = elements.pop().value(name, tools)
    if isinstance(read, Flaw):
        return read
    elements[-1].parts.append((key, read.value))
    return None


def _tagged(key: str, text: str) -> str:
    return f"{SPACE}<{key}>{text}{SPACE}</{key}>"


def _written(value: Any) -> str:
    """Write what is inside a tag."""
    if isinstance(value, dict):
        return "".join(_tagged(key, _written(part)) for key, part in value.items())
    if isinstance(value, list):
        return "".join(_tagged(_ITEM, _written(part)) for part in value)
    return value if isinstance(value, str) else dump(value)


class MiniMaxM3(Format):
    """The format of MiniMax M3.

    What would be read differently inside an object or a list is written as JSON.
    """

    name = "minimax_m3"
    models = "minimax-?m3"
    signs = (SPACE, "<invoke name=")
    parser = MiniMaxM3Parser
    marks = (re.compile(r"\]<\]minimax\[>\[", re.IGNORECASE),)
    closing = "</invoke>"
    section = (f"{MiniMaxM3Parser.section[0]}\n", "\n", f"\n{MiniMaxM3Parser.section[1]}")
    call = f'{MiniMaxM3Parser.tags[0]}{{name}}">{{arguments}}{MiniMaxM3Parser.tags[1]}'

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        return "".join(
            self._write_argument(name, key, value, tools) for key, value in arguments.items()
        )

    def _write_argument(self, name: str, key: str, value: Any, tools: Toolbox) -> str:
        if not isinstance(value, dict | list):
            return _tagged(key, write_value(value, tools.types(name, key)))
        tagged = _tagged(key, _written(value))
        read = _read(tagged, name, tools)
        same = isinstance(read, Loaded) and dump(read.value) == dump({key: value})
        return tagged if same else _tagged(key, dump(value))
