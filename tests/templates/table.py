"""What can be said of a chat template: a row of the table."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sfusion_tools.errors import TemplateError
from sfusion_tools.formats import format_for
from sfusion_tools.rollout.continuation import difference
from sfusion_tools.rollout.guess import format_of
from sfusion_tools.rollout.outline import Messages
from sfusion_tools.tokenizers import HfTokenizer
from tests.sfusion_tools.tokenizers.test_hugging_face import save_tokenizer
from tests.templates.published import Published

_MARK = re.compile(
    r"<[|｜][^<>\s'\"{}]{1,40}>|<[^<>\s'\"{}/]{1,40}[|｜]>|</?s>|<sep>|<escape>|<seed:[a-z]+>|<SPECIAL_\d+>"
    r"|<(?:start|end)_[a-z_]+>|\[/?[A-Z_]{3,}\]|\[e~\[|\]~b\]|</longcat_s>"
)
HEAD = ("model", "same tokens", "thinking", "format")
SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What."}},
            },
        },
    }
]


def tokenizers(templates: Mapping[str, str]) -> Iterator[tuple[str, HfTokenizer]]:
    """Yield a tokenizer for each template; all have the special tokens that are written in any of
    them."""
    marks = sorted({mark for text in templates.values() for mark in _MARK.findall(text)} - {"<s>"})
    with TemporaryDirectory() as directory:
        shared = HfTokenizer(save_tokenizer(Path(directory), "", "<|eos|>", marks))
    for name, text in templates.items():
        one = copy.copy(shared)
        one.name = name
        one._inner = copy.copy(shared._inner)
        one._inner.chat_template = text
        yield name, one


def row(name: str, tokenizer: HfTokenizer) -> tuple[str, ...]:
    """Examine a template: whether each kind of turn is written as in the same conversation rendered
    at once."""

    def verdict(rounds: tuple[int, ...], system: Messages = ()) -> str:
        found = difference(tokenizer, TOOLS, rounds, system)
        return (
            "✓"
            if found is None
            else {"refused": "no", "replies": "differs", "earlier": "earlier"}[found.kind]
        )

    form = format_of(tokenizer)
    by_id = format_for(model=name)
    shown = form.name if form else f"{by_id.name} (by id)" if by_id else "–"
    single = verdict((1,))
    turns = {
        "parallel calls": verdict((2,)) if single != "no" else "no",
        "user turn after tools": verdict((1, 0)),
    }
    exceptions = [f"{turn}: {found}" for turn, found in turns.items() if found != single]
    with_system = verdict((1, 0), [SYSTEM])
    if with_system not in ("no", turns["user turn after tools"]):
        exceptions.append(f"system message: {with_system}")
    return name, "; ".join([single, *exceptions]), _thinking(tokenizer), shown


def _thinking(tokenizer: HfTokenizer) -> str:
    def prompt(**options: Any) -> list[int]:
        tokenizer._options = options
        try:
            return tokenizer.apply_chat_template(
                [{"role": "user", "content": "?"}], TOOLS, add_generation_prompt=True
            )
        except TemplateError:
            return []
        finally:
            tokenizer._options = {}

    for option in ("enable_thinking", "thinking", "reasoning"):
        if prompt(**{option: True}) != prompt(**{option: False}):
            return f"`{option}`"
    return "always" if re.search(r"<(?:\w+:)?think>\s*$", tokenizer.decode(prompt())) else "–"


def rows(
    templates: Mapping[str, str], published: Mapping[str, Published] | None = None
) -> Iterator[str]:
    """Yield the lines of the table, with a column for what is known of published templates."""
    head = HEAD if published is None else (*HEAD, "published")
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for name, tokenizer in tokenizers(templates):
        cells = row(name, tokenizer)
        if published is not None:
            known = published.get(name)
            cells = (*cells, known.note(cells[1:]) if known else "–")
        yield f"| {' | '.join(cells)} |"
