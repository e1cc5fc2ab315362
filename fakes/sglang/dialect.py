"""A dialect: what sglang and the models it serves were seen to do with one tool-call format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.fakes.sglang.calls import CallStream, Extract
from sfusion.fakes.sglang.malformed_kinds import Maker
from sfusion.fakes.sglang.quirk_text import ToolTable

__all__ = ["Dialect"]


@dataclass(frozen=True)
class Dialect:
    """What is peculiar to one format; the defaults suit a format of which nothing was recorded."""

    form: str
    parse: Callable[[str, ToolTable], Extract] | None = None
    """What sglang's parser makes of a whole text."""
    stream: Callable[[Sequence[Any]], CallStream] | None = None
    """What sglang's parser sends while a text streams, given the tools."""
    has_grammar: bool = True
    """False if constrained decoding cannot hold a model to the format: calls are then a plain JSON array."""
    shown_name: str | None = None
    """The name in ``/model_info``, where sglang replaces a deprecated one."""
    numbered_ids: bool = False
    """Call ids are ``functions.NAME:NUMBER``, counted through the conversation."""
    malformed: Mapping[str, Maker | None] = field(default_factory=dict)
    """Kinds of malformed text that are made differently in this format, or not at all."""
