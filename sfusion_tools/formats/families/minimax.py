"""MiniMax M3: a namespace token before every tag, and the keys of arguments as tags, also inside
objects and lists."""

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
        raw = (
            self.tags[0]
            + head
            + self.separator
            + text
            + (self.tags[1] if edge == self.tags[1] else "")
        )
        if edge is None:
            read: Loaded | Flaw = Flaw("truncated", f"the text ends before its {self.tags[1]}")
        elif edge != self.tags[1]:
            read = Flaw("bad_layout", f"its {self.tags[1]} is missing")
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
        key = ".".join(self.path)
        types = tools.types(name, *self.path) if self.path else frozenset({"object"})
        if not self.parts:
            if not self.text.strip() and "string" not in types and types & {"array", "object"}:
                return Loaded([] if "array" in types else {})
            return read_value(self.text, types, key)
        if types and not types & {"array", "object"}:
            return Flaw(
                "bad_value", f"its parameter {key} must be {' or '.join(sorted(types))}, found tags"
            )
        keys = [part for part, _ in self.parts]
        if types != {"object"} and set(keys) == {_ITEM}:
            return Loaded([value for _, value in self.parts])
        if len(set(keys)) < len(keys):
            return Flaw(
                "duplicate_key", f"it has the key {Counter(keys).most_common(1)[0][0]} twice"
            )
        return Loaded(dict(self.parts))


def _read(text: str, name: str, tools: Toolbox) -> Loaded | Flaw:
    """Read the arguments of a call, or say what is wrong with them."""
    before, *tags = text.split(SPACE)
    open_ = [_Element((), before)]
    for written in tags:
        tag = _TAG.match(written)
        if tag is None:
            return Flaw("bad_layout", f"{SPACE} in it is not followed by a tag")
        key, rest = tag[2], written[tag.end() :]
        if not tag[1]:
            if open_[-1].text.strip():
                return Flaw(
                    "bad_layout", f"there is text before <{key}> ({open_[-1].text.strip()[:40]!r})"
                )
            if len(open_) > ENOUGH:
                return TOO_DEEP
            open_.append(_Element((*open_[-1].path, key), rest))
            continue
        if len(open_) == 1 or open_[-1].path[-1] != key or rest.strip():
            return Flaw(
                "bad_layout", f"there is a </{key}> in it that closes nothing, or text after it"
            )
        value = open_.pop().value(name, tools)
        if isinstance(value, Flaw):
            return value
        open_[-1].parts.append((key, value.value))
    if len(open_) > 1:
        return Flaw(
            "bad_layout",
            f"its parameter {open_[-1].path[-1]} is not closed by {SPACE}</{open_[-1].path[-1]}>",
        )
    if before.strip():
        return Flaw("bad_layout", f"there is text before its arguments ({before.strip()[:40]!r})")
    return open_[0].value(name, tools)


def _tagged(key: str, text: str) -> str:
    return f"{SPACE}<{key}>{text}{SPACE}</{key}>"


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(_tagged(key, _written(part)) for key, part in value.items())
    if isinstance(value, list):
        return "".join(_tagged(_ITEM, _written(part)) for part in value)
    return value if isinstance(value, str) else dump(value)


class MiniMaxM3(Format):
    """The format of MiniMax M3. What would be read differently inside an object or a list is
    written as JSON."""

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
