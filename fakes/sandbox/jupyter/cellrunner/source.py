"""Compiles the text of a cell: shell lines, magics, the value of the last line. Pure."""

from __future__ import annotations

import ast
import codeop
import io
import re
import tokenize
from dataclasses import dataclass
from types import CodeType

_SHELL = re.compile(r"^(?P<indent>[ \t]*)!(?P<command>.*)$")
_MAGIC = re.compile(r"^(?P<indent>[ \t]*)(?P<mark>%%?)(?P<name>[A-Za-z_]\w*)(?P<rest>.*)$")
_CAPTURE = re.compile(r"^(?P<target>[ \t]*[A-Za-z_][\w.,\[\] \t]*=[ \t]*)!(?P<command>.*)$")
_HELP = re.compile(r"^[ \t]*(?:\?{1,2}[ \t]*[A-Za-z_][\w.]*|[A-Za-z_][\w.]*[ \t]*\?{1,2})[ \t]*$")
SHELL, CAPTURE, MAGIC = "__sfusion_shell__", "__sfusion_capture__", "__sfusion_magic__"
"""The names that the rewritten lines call."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A compiled cell: statements, then an expression whose value is displayed unless silenced."""

    statements: CodeType
    expression: CodeType | None
    silent: bool


def rewritten(text: str) -> str:
    """Replace lines that are not Python by calls; the number of lines stays the same."""
    lines = text.split("\n")
    if lines and (first := _MAGIC.match(lines[0])) and first["mark"] == "%%":
        body = "\n".join(lines[1:])
        return f"{MAGIC}({first['name']!r}, {first['rest'].strip()!r}, {body!r})" + "\n" * (len(lines) - 1)
    inside = _lines_inside_strings(text)
    for number, line in enumerate(lines):
        if number + 1 in inside:
            continue
        if shell := _SHELL.match(line):
            lines[number] = f"{shell['indent']}{SHELL}({shell['command']!r})"
        elif capture := _CAPTURE.match(line):
            lines[number] = f"{capture['target']}{CAPTURE}({capture['command']!r})"
        elif _HELP.match(line):
            lines[number] = "pass"  # a kernel shows help in a pager, which is not output of the cell
        elif (magic := _MAGIC.match(line)) and magic["mark"] == "%":
            lines[number] = f"{magic['indent']}{MAGIC}({magic['name']!r}, {magic['rest'].strip()!r})"
    return "\n".join(lines)


def _lines_inside_strings(text: str) -> set[int]:
    """Find the lines that begin inside a string or a bracket, which cannot be shell lines."""
    inside: set[int] = set()
    masked = re.sub(r"(?m)^([ \t]*)(?:[!%].*|[\w.]+\?{1,2}[ \t]*|\?{1,2}[\w.]+[ \t]*)$", r"\1pass", text)
    masked = re.sub(r"(?m)(=[ \t]*)!.*$", r"\1None", masked)
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(masked).readline):
            if token.type == tokenize.STRING:
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
            elif token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            elif token.type == tokenize.NL and depth:
                inside.add(token.start[0] + 1)
    except (tokenize.TokenError, SyntaxError):
        return inside
    return inside


def ends_with_semicolon(text: str) -> bool:
    """Return whether a cell ends with a semicolon, ignoring comments."""
    last = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
                last = token.string or last
    except (tokenize.TokenError, SyntaxError):
        return False
    return last == ";"


def compiled(text: str, filename: str) -> Cell:
    """Compile a cell; raises SyntaxError as Python does."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(rewritten(text), filename, "exec", flags | ast.PyCF_ONLY_AST | codeop.Compile().flags)
    last: CodeType | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        expression = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]  # seen to be an Expr
        last = compile(expression, filename, "eval", flags)
    return Cell(compile(tree, filename, "exec", flags), last, ends_with_semicolon(text))
