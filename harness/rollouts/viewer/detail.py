"""The right pane: the turns of a sample, with collapsed tool calls and highlighted search hits."""

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

from sfusion_tools.wording import counted

from ...core.dumps.sample import Sample
from ...terminal import printable
from .parts import TurnPart, TurnView, split_turns

HIT = "black on yellow"
_TITLE_LENGTH = 72
"""Columns of a title (chosen: it leaves room on a terminal of 80)."""
# A field or a malformed line may have megabytes, which would take minutes to draw.
_MAX_LENGTH = 200_000


def sample_widgets(sample: Sample, term: str, expanded: bool) -> list[Widget]:
    if sample.problem is not None:
        return [
            Static(
                Content(f"line {sample.number + 1} is not a sample: {sample.problem}"),
                classes="problem",
            ),
            _text(sample.output, term, "raw"),
        ]
    widgets: list[Widget] = []
    for turn in split_turns(sample.input, first_role="prompt"):
        if turn.parts:
            widgets.append(_turn(turn, term, expanded, collapsible=turn.role == "system"))
    for turn in split_turns(sample.output):
        widgets.append(_turn(turn, term, expanded, collapsible=turn.role == "tool"))
    return widgets


def _turn(turn: TurnView, term: str, expanded: bool, *, collapsible: bool) -> Widget:
    role = turn.role if turn.role in ("system", "user", "assistant", "tool") else "other"
    children: list[Widget] = []
    if collapsible:
        text = turn.parts[0].text if turn.parts else ""
        # The system prompt is long and always the same, so it stays collapsed when the calls are
        # expanded.
        is_open = expanded and turn.role == "tool"
        title = f"{turn.role}  {_first_line(text)}"
        children.append(_collapsible(title, highlighted(text, term), text, term, is_open))
    else:
        children.append(Static(Content(turn.role), classes="role"))
        children += [_part(part, term, expanded) for part in turn.parts]
    return Vertical(*children, classes=f"turn {role}")


def _part(part: TurnPart, term: str, expanded: bool) -> Widget:
    call = part.call
    if call is None:
        return _text(part.text, term, part.kind)
    name = printable(call.name)
    if call.problem:
        title = f"malformed call to {name}" if name != "?" else "malformed call"
        return _collapsible(title, highlighted(part.text, term), part.text, term, expanded)
    lines = sum(value.count("\n") + 1 for _, value in call.arguments)
    title = f"call {name} · {counted(lines, 'line')}"
    return _collapsible(title, _arguments(call.arguments, term), part.text, term, expanded)


def _text(text: str, term: str, kind: str) -> Static:
    return Static(highlighted(text, term), classes=f"{kind} hit" if _is_hit(text, term) else kind)


def _is_hit(text: str, term: str) -> bool:
    return bool(term) and term.lower() in text.lower()


def _arguments(arguments: tuple[tuple[str, str], ...], term: str) -> Text:
    text = Text()
    for key, value in arguments:
        value = printable(value, keep="\n\t")
        text.append(f"{printable(key)}: ", style="bold")
        if key == "code" and len(value) < _MAX_LENGTH:
            text.append("\n")
            shown = Syntax(
                value, "python", theme="ansi_dark", background_color="default"
            ).highlight(value)
            shown.rstrip()
        else:
            shown = Text(value[:_MAX_LENGTH])
        text.append_text(shown)
        text.append("\n")
    text.rstrip()
    return _hits(text, term)


def _collapsible(title: str, body: Text, searched: str, term: str, expanded: bool) -> Collapsible:
    is_hit = _is_hit(searched, term)
    return Collapsible(
        Static(body),
        title=escape(title),
        collapsed=not (expanded or is_hit),
        classes="hit" if is_hit else "",
    )


def highlighted(text: str, term: str) -> Text:
    """The text with search hits highlighted and control characters spelled out."""
    if len(text) <= _MAX_LENGTH:
        cut = text
    else:
        cut = f"{text[:_MAX_LENGTH]}\n… {len(text) - _MAX_LENGTH:,} more characters"
    return _hits(Text(printable(cut, keep="\n\t")), term)


def _hits(text: Text, term: str) -> Text:
    if term:
        text.highlight_words([term], HIT, case_sensitive=False)
    return text


def _first_line(text: str) -> str:
    line = printable(next((line for line in text.splitlines() if line.strip()), "(empty)")).strip()
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def field_text(sample: Sample, term: str = "") -> Text:
    """The fields of a sample and of its request, one per line."""
    text = Text()
    for key, value in _flat(sample.fields):
        text.append(f"{printable(key)}: ", style="bold")
        text.append(f"{printable(value)}\n")
    if not sample.fields:
        text.append("no fields", style="dim")
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
