"""The right-hand side: one sample as turns, with tool calls folded and hits highlighted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.syntax import Syntax
from rich.text import Text
from textual.containers import Vertical
from textual.content import Content
from textual.markup import escape
from textual.widget import Widget
from textual.widgets import Collapsible, Static

from sfusion.harness.viewer.sample import Sample
from sfusion.harness.viewer.turns import Part, Turn, read_call, split_turns

HIT = "black on yellow"
_TITLE = 72
# A field or a broken line may be megabytes; nobody reads that in a terminal, and drawing it would take minutes.
_LONGEST = 200_000


def sample_widgets(sample: Sample, term: str, unfolded: bool) -> list[Widget]:
    """The widgets of a sample, top to bottom."""
    if sample.problem is not None:
        return [
            Static(Content(f"line {sample.number + 1} is no sample: {sample.problem}"), classes="problem"),
            _said(sample.output, term, "raw"),
        ]
    widgets: list[Widget] = []
    prompt = split_turns(sample.input, first_role="prompt")
    for turn in prompt:
        if turn.parts:
            widgets.append(_turn(turn, term, unfolded, fold_all=turn.role == "system"))
    for turn in split_turns(sample.output):
        widgets.append(_turn(turn, term, unfolded, fold_all=turn.role == "tool"))
    return widgets


def _turn(turn: Turn, term: str, unfolded: bool, *, fold_all: bool) -> Widget:
    role = turn.role if turn.role in ("system", "user", "assistant", "tool") else "other"
    children: list[Widget] = []
    if fold_all:
        text = turn.parts[0].text if turn.parts else ""
        # The system's turn is long and always the same: unfolding calls leaves it alone.
        open_it = unfolded and turn.role == "tool"
        title = f"{turn.role}  {_first_line(text)}"
        children.append(_folded(title, marked(text, term), text, term, open_it))
    else:
        children.append(Static(Content(turn.role), classes="role"))
        children += [_part(part, term, unfolded) for part in turn.parts]
    return Vertical(*children, classes=f"turn {role}")


def _part(part: Part, term: str, unfolded: bool) -> Widget:
    if part.kind != "call":
        return _said(part.text, term, part.kind)
    call = read_call(part.text)
    if not call.arguments:
        title = f"call {call.name} (arguments cannot be read)" if call.name != "?" else "call that cannot be read"
        return _folded(title, marked(part.text, term), part.text, term, unfolded)
    lines = sum(value.count("\n") + 1 for _, value in call.arguments)
    title = f"call {call.name} · {lines} line{'s' if lines > 1 else ''}"
    return _folded(title, _arguments(call.arguments, term), part.text, term, unfolded)


def _said(text: str, term: str, kind: str) -> Static:
    return Static(marked(text, term), classes=f"{kind} hit" if _is_hit(text, term) else kind)


def _is_hit(text: str, term: str) -> bool:
    return bool(term) and term.lower() in text.lower()


def _arguments(arguments: tuple[tuple[str, str], ...], term: str) -> Text:
    text = Text()
    for key, value in arguments:
        text.append(f"{key}: ", style="bold")
        if key == "code" and len(value) < _LONGEST:
            text.append("\n")
            shown = Syntax(value, "python", theme="ansi_dark", background_color="default").highlight(value)
            shown.rstrip()
        else:
            shown = Text(value[:_LONGEST])
        text.append_text(shown)
        text.append("\n")
    text.rstrip()
    return _hits(text, term)


def _folded(title: str, body: Text, searched: str, term: str, unfolded: bool) -> Collapsible:
    is_hit = _is_hit(searched, term)
    return Collapsible(
        Static(body), title=escape(title), collapsed=not (unfolded or is_hit), classes="hit" if is_hit else ""
    )


def marked(text: str, term: str) -> Text:
    """A text with every hit highlighted; control characters cannot reach the terminal."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n… {len(text) - _LONGEST:,} more characters"
    return _hits(Text(_printable(cut)), term)


def _hits(text: Text, term: str) -> Text:
    if term:
        text.highlight_words([term], HIT, case_sensitive=False)
    return text


def _printable(text: str) -> str:
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _first_line(text: str) -> str:
    line = _printable(next((line for line in text.splitlines() if line.strip()), "(empty)")).strip()
    return line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…"


def field_text(sample: Sample, term: str = "") -> Text:
    """The fields of a sample and of the request behind it, one a line."""
    text = Text()
    for key, value in _flat(sample.fields):
        text.append(f"{key}: ", style="bold")
        text.append(f"{_printable(value)}\n")
    if not sample.fields:
        text.append("no further fields", style="dim")
    return _hits(text, term)


def _flat(fields: Any) -> Iterator[tuple[str, str]]:
    for key, value in fields.items():
        if isinstance(value, dict):
            shown = "  ".join(f"{name}={_short(found)}" for name, found in value.items()) or "–"
        else:
            shown = _short(value)
        yield str(key), shown


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 2000 else f"{text[:2000]}…"
