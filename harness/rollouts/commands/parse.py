"""``sfusion parse``: show the tool calls in a text, and why others were refused.

Exit code 0 if there were no problems, 1 otherwise, 2 if the input could not be read. With --jsonl,
problems are data, so the exit code is 0 unless a line could not be read.

Example: sfusion parse --format hermes reply.txt
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from typer import Argument

from sfusion_tools.bounded_input import MAX_LINE, bounded_lines, decoded, parse_json
from sfusion_tools.errors import InputError, YamlError
from sfusion_tools.formats import Parsed, ParsedCall, Problem, Toolbox, get_format
from sfusion_tools.marked_yaml import parse_marked
from sfusion_tools.wording import counted

from ....fakes.wire.message import json_line
from ...commandline.declaring import command, option
from ...commandline.exits import fail
from ...terminal import printable

_SIGNS = {"refused": ("✗", "red"), "repaired": ("~", "yellow"), "noticed": ("!", "cyan")}
_safe = partial(printable, keep="\t")


@command
def parse(
    file: Annotated[
        Path | None,
        Argument(metavar="FILE", help="File with the text; standard input if missing or -."),
    ] = None,
    format: Annotated[
        str | None,
        option(
            "Tool-call format: hermes, qwen25, llama3, mistral, ...",
            "FORMAT",
            names=("--format", "-f"),
        ),
    ] = None,
    tools: Annotated[
        Path | None,
        option("The tools that may be called: a tool config (YAML) or a JSON list of tools."),
    ] = None,
    jsonl: Annotated[
        bool, option("Read {id, format, text} lines, write {id, content, calls, problems} lines.")
    ] = False,
    in_think: Annotated[bool, option("The prompt ended inside the thinking.")] = False,
) -> int:
    toolbox = Toolbox(_load_tools(tools)) if tools else None
    form = get_format(format) if format else None
    if jsonl:
        with _opened(file) as lines:
            return _parse_lines(bounded_lines(lines, str(file or "-")), format, toolbox, in_think)
    text = _read(file)
    if form is None:
        fail("--format is missing; give the format of the text, for example --format hermes.")
    parsed = form.parse(text, toolbox, in_think=in_think)
    _show(parsed, form.name)
    return 1 if parsed.problems else 0


def _parse_lines(
    lines: Iterator[tuple[int, bytes]], default: str | None, toolbox: Any, in_think: bool
) -> int:
    broken = 0
    for number, line in lines:
        if not line.strip():
            continue
        try:
            parsed = _parse_line(line, default, toolbox, in_think)
        except Exception as error:  # whatever is wrong with a line, the others are parsed
            broken += 1
            message = f"line {number}: {error or type(error).__name__}\n"
            typer.echo(message.encode("utf-8", errors="backslashreplace"), err=True, nl=False)
            continue
        typer.echo(parsed, nl=False)
    return 2 if broken else 0


def _parse_line(line: bytes, default: str | None, toolbox: Any, in_think: bool) -> bytes:
    entry = _entry(line, default)
    form = get_format(entry["format"])
    parsed = form.parse(
        entry["text"], toolbox, in_think=in_think, finish_reason=entry.get("finish_reason")
    )
    written = {
        "id": entry.get("id"),
        "content": parsed.content,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in parsed.calls],
        "problems": [problem.as_dict() for problem in parsed.problems],
    }
    return json_line(written).encode("utf-8")


def _entry(line: bytes, default: str | None) -> dict[str, Any]:
    try:
        entry = parse_json(line, "line")
    except InputError as error:
        problem = str(error).removeprefix("line: ")
        raise ValueError(
            f"{problem}; every line must be an object with id, format and text"
        ) from error
    if not isinstance(entry, dict):
        raise ValueError(
            f"found {type(entry).__name__}, but every line must be an object with id, "
            "format and text"
        )
    entry.setdefault("format", default)
    for key in ("format", "text"):
        if not isinstance(entry.get(key), str):
            hint = " (or pass --format)" if key == "format" else ""
            raise ValueError(
                f"{key} is {'not a string' if entry.get(key) is not None else 'missing'}; "
                f"add it{hint}"
            )
    return entry


def _opened(file: Path | None) -> AbstractContextManager[IO[bytes]]:
    if file is None or str(file) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror}).")


def _read(file: Path | None) -> str:
    with _opened(file) as opened:
        content = opened.read(MAX_LINE + 1)
    if len(content) > MAX_LINE:
        fail(
            f"{file or 'standard input'} is larger than {MAX_LINE:,} bytes, the most that is read."
        )
    return decoded(content, file or Path("standard input"))


def _load_tools(file: Path) -> list[Any]:
    text = _read(file)
    try:
        # JSON is also YAML, but the JSON parser copes better with tabs and long texts.
        is_json = text.lstrip()[:1] in ("[", "{")
        data = parse_json(text, str(file)) if is_json else parse_marked(text, str(file)).data
    except (InputError, YamlError) as error:
        fail(
            f"{file} is neither a JSON list of tools nor a tool config in YAML: "
            f"{' '.join(str(error).split())}"
        )
    listed = data.get("tools") if isinstance(data, dict) else data
    if not isinstance(listed, list):
        fail(f"{file} has no list of tools; a tool config has them under the key `tools`.")
    found = []
    for number, entry in enumerate(listed, start=1):
        tool = entry.get("tool_schema", entry) if isinstance(entry, dict) else entry
        try:
            Toolbox([tool])
        except (KeyError, TypeError, AttributeError, ValueError):
            fail(
                f"{file}: tool {number} has no function name; each entry needs "
                "tool_schema.function.name."
            )
        found.append(tool)
    return found


def _show(parsed: Parsed, form: str) -> None:
    refused = len(parsed.refused)
    others = len(parsed.problems) - refused
    extra = f", {counted(others, 'remark')}" if others else ""
    typer.secho(
        f"{form}: {counted(len(parsed.calls), 'call')}, {refused} refused{extra}", bold=True
    )
    for call in parsed.calls:
        _show_call(call)
    for problem in parsed.problems:
        _show_problem(problem)
    if parsed.content:
        typer.secho("\ncontent", bold=True)
        for line in parsed.content.split("\n"):
            typer.echo(f"  {_safe(line)}")


def _show_call(call: ParsedCall) -> None:
    typer.echo()
    typer.secho(f"✓ {_safe(call.name)}", fg="green", nl=False)
    typer.echo(f"  (character {call.position})")
    for key, value in call.arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        first, *rest = shown.split("\n")
        typer.echo(f"    {_safe(key)} = {_safe(first)}")
        for line in rest:
            typer.echo(f"    {' ' * len(key)}   {_safe(line)}")


def _show_problem(problem: Problem) -> None:
    sign, colour = _SIGNS[problem.severity]
    typer.echo()
    typer.secho(f"{sign} {problem.severity}: {problem.kind}", fg=colour, nl=False)
    typer.echo(f"  (character {problem.position})")
    for line in problem.message.split("\n"):
        typer.echo(f"    {_safe(line)}")
    if problem.excerpt:
        typer.secho(f"    » {_safe(problem.excerpt.replace(chr(10), '⏎'))}", dim=True)
