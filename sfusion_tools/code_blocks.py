"""Finds the program in a generation: fenced blocks of Markdown as models write them."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from dataclasses import dataclass
from functools import cache

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<info>.*)")
_FENCE_IN_LINE = re.compile(r"(?P<before>.*?[^`])(?P<fence>`{3,})[ \t]*(?P<info>[\w+#-]+)")
_LIST_MARKER = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]+")
_QUOTE_MARKER = re.compile(r"[ \t]*>[ \t]*")
_TAG = re.compile(r"[\w+#-]+")
_TAGS = {
    "python": ("python", "py", "python3"),
    "cpp": ("cpp", "c++", "cc"),
    "nodejs": ("nodejs", "javascript", "js"),
    "typescript": ("typescript", "ts"),
    "csharp": ("csharp", "c#", "cs"),
    "bash": ("bash", "sh", "shell"),
    "rust": ("rust", "rs"),
}
"""Common tags of fenced blocks, for languages whose name is not the only one."""
_ALL_TAGS = {tag for tags in _TAGS.values() for tag in tags}
_STRING = re.compile(r"(?P<triple>\"{3}|'{3})|\"(?:[^\"\\]|\\.)*(?:\"|$)|'(?:[^'\\]|\\.)*(?:'|$)|#")
"""What begins a string of several lines, a string within a line, or a comment."""
_BYTE_ORDER_MARK = "\ufeff"
_PARSES = 6
_LONGEST_PARSED = 40_000
"""Bounds on the work for a block that is never closed: how often, and how many characters of it,
are parsed. Chosen: a few lines of prose after a program, and programs as models write them."""
_parsing = threading.Lock()
"""``catch_warnings`` changes the state of the process."""


@dataclass(slots=True)
class _Block:
    fence: str
    indent: int
    info: str
    first: int
    """The line after the opening fence."""
    end: int | None = None
    """The line of the closing fence; None if there is none."""
    last: str = ""
    """What precedes the closing fence in its line."""
    nested: int | None = None
    """The line in which another block opens."""
    quoted: bool = False
    string: str | None = None
    """The triple quotes of a string of Python that is open after the lines read so far."""

    @property
    def tag(self) -> str:
        # Also `{.python .numberLines}`, `python:main.py` and `python title="x"`.
        found = _TAG.search(self.info)
        return found[0].lower() if found else ""

    def is_blank(self, lines: list[str]) -> bool:
        stops = [stop for stop in (self.end, self.nested, len(lines)) if stop is not None]
        return not self.last.strip() and not any(
            lines[at].strip() for at in range(self.first, min(stops))
        )

    def body(self, lines: list[str], language: str) -> str:
        if self.end is not None:
            return self._text([*lines[self.first : self.end], self.last])
        if language == "python":
            return _python_part(self._text(lines[self.first :]))
        return self._text(lines[self.first : self.nested])

    def _text(self, lines: list[str]) -> str:
        if self.quoted:
            return "\n".join(re.sub(r"^[ \t]*> ?", "", line) for line in lines)
        first = next((line for line in lines if line.strip()), "")
        indent = min(self.indent, len(first) - len(first.lstrip(" \t")))
        return "\n".join(re.sub(rf"^[ \t]{{0,{indent}}}", "", line) for line in lines)


def extract_code(text: str, language: str = "python") -> str:
    """Return the last fenced block of that language.

    If there is none, the last of any language, else the whole text. A block that is never closed
    ends with the text, or, in Python, where the text stops being Python.
    """
    lines = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
    tags = _TAGS.get(language, (language.lower(),))
    found = _blocks(lines, _ALL_TAGS.union(tags), strings=language == "python")
    # Quotes that are never closed are no string.
    if any(block.string and block.end is None for block in found):
        found = _blocks(lines, _ALL_TAGS.union(tags), strings=False)
    blocks = [block for block in found if not block.is_blank(lines)]
    named = [block for block in blocks if block.tag in tags]
    code = (named or blocks)[-1].body(lines, language) if blocks else text
    return code.removeprefix(_BYTE_ORDER_MARK)


def _blocks(lines: list[str], tags: set[str], *, strings: bool) -> list[_Block]:
    """Find the blocks.

    With ``strings``, a fence inside a string of Python belongs to the string.
    """
    blocks: list[_Block] = []
    opened: list[_Block] = []
    for number, line in enumerate(lines):
        top = opened[-1] if opened else None
        if strings and top is not None and _is_in_string(line, top):
            continue
        found = _FENCE.match(line.rstrip())
        if top is not None and _closes(line, number, top, found):
            opened.pop()
            continue
        block = _opens(line, number, top, found, tags)
        if block is not None:
            opened.append(block)
            blocks.append(block)
    return blocks


def _is_in_string(line: str, block: _Block) -> bool:
    """Does a string of several lines go on in this line, or begin there? Note where it ends."""
    if block.tag not in ("", *_TAGS["python"]):
        return False
    before = block.string
    block.string = _string_after(line, before)
    if before:
        return True
    begins = block.string is not None
    return begins and _string_after(line.rstrip().rstrip("`"), before) is not None


def _closes(line: str, number: int, block: _Block, found: re.Match[str] | None) -> bool:
    """Does this line close the block? Note where and after what."""
    if found is None:
        last = _closed_in(line, block)
        if last is None:
            return False
        block.last = last
    elif not _is_bare(found) or not (
        found["fence"].startswith(block.fence) and len(found["indent"]) <= block.indent + 3
    ):
        return False
    block.end = number
    return True


def _is_bare(found: re.Match[str]) -> bool:
    """Is this a fence without a tag? A closing tag of XML after it does not count."""
    return not found["info"] or found["info"].startswith("</")


def _opens(
    line: str, number: int, top: _Block | None, found: re.Match[str] | None, tags: set[str]
) -> _Block | None:
    """Return the block that this line opens, if it does.

    Inside a block a fence with a tag opens another one: nested, or the first was never closed.
    """
    if found is None:
        return _opened_in(line.rstrip(), number, tags) if top is None else None
    if top is not None:
        if _is_bare(found):
            return None
        if top.nested is None:
            top.nested = number
    return _Block(found["fence"], len(found["indent"]), found["info"], number + 1)


def _string_after(line: str, quotes: str | None) -> str | None:
    """Return the triple quotes of the string that is open after a line, given those before it."""
    at = 0
    while True:
        if quotes:
            end = _closing(quotes).search(line, at)
            if end is None:
                return quotes
            at = end.end()
        found = _STRING.search(line, at)
        if found is None or found[0] == "#":
            return None
        at = found.end()
        quotes = found["triple"]


@cache
def _closing(quotes: str) -> re.Pattern[str]:
    return re.compile(rf"(?:[^\\{quotes[0]}]|\\.|{quotes[0]}(?!{quotes[1:]}))*{quotes}")


def _opened_in(line: str, number: int, tags: set[str]) -> _Block | None:
    """Return the block that a fence with a known tag opens after other text.

    As in ``Answer: ```python``.
    """
    if len(re.findall(r"`{3,}", line)) != 1:
        return None
    found = _FENCE_IN_LINE.fullmatch(line)
    if found is None or found["info"].lower() not in tags:
        return None
    before = found["before"]
    indent = len(before) if _LIST_MARKER.fullmatch(before) else 0
    quoted = _QUOTE_MARKER.fullmatch(before) is not None
    return _Block(found["fence"], indent, found["info"], number + 1, quoted=quoted)


def _closed_in(line: str, block: _Block) -> str | None:
    """Return what comes before a closing fence at the end of a line of code; None without one."""
    runs = re.findall(r"`{3,}", line)
    code = line.rstrip().removesuffix(block.fence)
    if len(runs) % 2 and runs[-1] == block.fence and code != line.rstrip():
        return code
    return None


def _python_part(text: str) -> str:
    """Return the longest beginning that parses; all if nothing does.

    Statements at its end that do nothing are left out.
    """
    lines = text[: _LONGEST_PARSED + 1].split("\n")
    is_whole = len(text) <= _LONGEST_PARSED
    if not is_whole:
        lines.pop()  # it may be cut
    for _ in range(_PARSES):
        try:
            with _parsing, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse("\n".join(lines))
        except SyntaxError as error:
            lines = lines[: min(error.lineno or 1, len(lines)) - 1]
            is_whole = True
        except (ValueError, MemoryError, RecursionError):
            break
        else:
            body = list(tree.body)
            while body and _does_nothing(body[-1]):
                lines = lines[: body.pop().lineno - 1]
            return "\n".join(lines) if body and is_whole else text
    return text


def _does_nothing(statement: ast.stmt) -> bool:
    """True for a word or two of prose that happen to be Python.

    Such as ``Done`` or ``Note: this is fine``.
    """
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    effects = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return isinstance(statement, ast.Expr) and not any(
        isinstance(node, effects) for node in ast.walk(statement)
    )
