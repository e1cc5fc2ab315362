"""Render tool calls as models write them, and parse them back, whole or as they stream.

    form = get_format("hermes")
    text = form.render([{"name": "code_interpreter", "arguments": {"code": "print(1)"}}], content="Let me see.")
    form.parse(text).calls[0].arguments          # {'code': 'print(1)'}

A broken text is data, not an exception: the good calls are returned, and each refused call is a ``Problem``.
"""

from __future__ import annotations

from sfusion_tools.errors import FormatError, RenderError, UnknownFormatError

from .format import Format
from .model import CallDelta, ContentDelta, Delta, Parsed, ParsedCall, Problem, ProblemDelta
from .registry import format_names, get_format
from .streamparser import StreamParser
from .toolbox import Toolbox

__all__ = [
    "CallDelta",
    "ContentDelta",
    "Delta",
    "Format",
    "FormatError",
    "Parsed",
    "ParsedCall",
    "Problem",
    "ProblemDelta",
    "RenderError",
    "StreamParser",
    "Toolbox",
    "UnknownFormatError",
    "format_names",
    "get_format",
]
