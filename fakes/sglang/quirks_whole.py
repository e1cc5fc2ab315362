"""What sglang's own parsers make of a whole text, faults included; see docs/tool-call-formats.md.

Written from what they were recorded to do (sglang of August 2026), not from their code: the result counts, and
it is measured against the recordings. A parser that raises in sglang raises here, too.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.formats.literal import is_json_tree

__all__ = ["QuirkCall", "QuirkError", "QuirkParse", "ToolTable", "parse_whole"]


class QuirkError(Exception):
    """Raised where sglang's parser raises: the request ends without any of its calls."""


@dataclass(frozen=True, slots=True)
class QuirkCall:
    """A call as sglang tells it; ``arguments`` is text, and not always JSON."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class QuirkParse:
    """The text and the calls that are left of a text."""

    content: str
    calls: tuple[QuirkCall, ...] = ()


@dataclass
class ToolTable:
    """The names of the tools with their places, and their parameters."""

    places: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Sequence[Any]) -> ToolTable:
        table = cls()
        for place, tool in enumerate(tools):
            function = tool.get("function") or tool
            table.places[function["name"]] = place
            table.parameters[function["name"]] = (function.get("parameters") or {}).get("properties") or {}
        return table

    def type_of(self, name: str, key: str) -> str | None:
        kind = self.parameters.get(name, {}).get(key, {}).get("type")
        return kind if isinstance(kind, str) else None


def parse_whole(form: str, text: str, tools: Sequence[Any]) -> QuirkParse:
    """The non-streaming parse."""
    return _PARSERS[form](text, ToolTable.of(tools))


def dumped(value: Any) -> str:
    """Arguments as sglang writes them again."""
    return json.dumps(value, ensure_ascii=False)


def from_objects(found: Any, table: ToolTable) -> list[QuirkCall]:
    """Calls out of decoded JSON: unknown names vanish, the place of the tool becomes the index of the call."""
    calls = []
    for item in found if isinstance(found, list) else [found]:
        if not isinstance(item, dict):
            raise QuirkError(f"AttributeError: {type(item).__name__!r} object has no attribute 'get'")
        name = item.get("name")
        if not isinstance(name, str) or name not in table.places:
            continue
        arguments = item.get("parameters") or item.get("arguments", {})
        calls.append(QuirkCall(table.places[name], name, dumped(arguments)))
    return calls


def literal(text: str) -> Any:
    """A Python literal, as far as JSON could hold it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = ast.literal_eval(text.strip())
    if not is_json_tree(value):
        raise ValueError(text)
    return value


def _hermes(text: str, table: ToolTable) -> QuirkParse:
    start = text.find("<tool_call>")
    if start < 0:
        return QuirkParse(text)
    calls: list[QuirkCall] = []
    for match in re.finditer(r"(?s)<tool_call>(?:(.*?)</tool_call>|(.*))", text):
        body = match[1] or match[2] or ""
        if not body:
            continue
        try:
            calls += from_objects(json.loads(body), table)
        except (ValueError, QuirkError):
            return QuirkParse(text)
    return QuirkParse(text[:start].strip(), tuple(calls))


def _qwen25(text: str, table: ToolTable) -> QuirkParse:
    start = text.find("<tool_call>\n")
    if start < 0:
        return QuirkParse(text)
    calls: list[QuirkCall] = []
    for body in re.findall(r"(?s)<tool_call>\n(.*?)\n</tool_call>", text):
        try:
            found = json.loads(body)
        except ValueError:
            continue
        calls += from_objects(found, table)
    return QuirkParse(text[:start].strip(), tuple(calls))


def _llama3(text: str, table: ToolTable) -> QuirkParse:
    before, tag, rest = text.partition("<|python_tag|>")
    if not tag:
        if not text.startswith("{"):
            return QuirkParse(text)
        before, rest = "", text
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = done = 0
    while at < len(rest):
        try:
            value, size = decoder.raw_decode(rest[at:])
        except ValueError:
            try:
                value, size = literal(rest[at:]), len(rest) - at
            except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                at = rest.find('{"name":', at + 1)
                if at < 0:
                    break
                continue
        found.append(value)
        at += size + 1
        done = at
    return QuirkParse(before + rest[done:], tuple(from_objects(found, table)))


def _mistral(text: str, table: ToolTable) -> QuirkParse:
    if "[TOOL_CALLS" not in text:
        return QuirkParse(text)
    before, _, _ = text.partition("[TOOL_CALLS")
    compact = list(re.finditer(r"\[TOOL_CALLS\]?\s*([^\s{]+?)\s*\[ARGS\]?\s*(?=[{\[])", text))
    if compact:
        return _mistral_compact(text, compact, table)
    opening = text.find("[TOOL_CALLS] [")
    if opening < 0:
        return QuirkParse(before.strip())
    begin = opening + len("[TOOL_CALLS] ")
    end = array_end(text, begin)
    after = text[end:] if end else ""
    content = " ".join(part for part in (text[:opening].strip(), after.strip()) if part)
    try:
        found = json.loads(text[begin : end or len(text)])
    except ValueError:
        return QuirkParse(content)
    return QuirkParse(content, tuple(from_objects(found, table)))


def _mistral_compact(text: str, matches: Sequence[re.Match[str]], table: ToolTable) -> QuirkParse:
    decoder = json.JSONDecoder()
    content = text[: matches[0].start()]
    calls: list[QuirkCall] = []
    end = 0
    for match in matches:
        try:
            value, size = decoder.raw_decode(text[match.end() :])
        except ValueError:
            return QuirkParse(content.strip(), tuple(calls))
        end = match.end() + size
        calls += from_objects({"name": match[1], "arguments": value}, table)
    tail = text[end:].strip()
    return QuirkParse(" ".join(part for part in (content.strip(), tail) if part), tuple(calls))


def array_end(text: str, begin: int) -> int:
    """Behind the bracket that closes the one at ``begin``, strings left aside; 0 if there is none."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]]', text[begin:], re.DOTALL):
        depth += {"[": 1, "]": -1}.get(match[0], 0)
        if depth == 0 and match[0] == "]":
            return begin + match.end()
    return 0


def _deepseek(pattern: str) -> Callable[[str, ToolTable], QuirkParse]:
    detail = re.compile(pattern, re.DOTALL)

    def parse(text: str, table: ToolTable) -> QuirkParse:
        start = text.find("<｜tool▁calls▁begin｜>")
        if start < 0:
            return QuirkParse(text)
        calls: list[QuirkCall] = []
        for block in re.findall(r"(?s)<｜tool▁call▁begin｜>.*?<｜tool▁call▁end｜>", text):
            match = detail.search(block)
            try:
                if match is None:
                    return QuirkParse(text)
                calls += from_objects({"name": match["name"], "parameters": json.loads(match["body"])}, table)
            except ValueError:
                return QuirkParse(text)
        return QuirkParse(text[:start].strip(), tuple(calls))

    return parse


def _glm(text: str, table: ToolTable) -> QuirkParse:
    start = text.find("<tool_call>")
    if start < 0:
        return QuirkParse(text)
    calls: list[QuirkCall] = []
    for block in re.findall(r"(?s)<tool_call>.*?</tool_call>", text):
        match = re.search(r"(?s)<tool_call>(.*?)(?:\\n|\n)(.*)</tool_call>", block)
        if match is None:
            continue
        name = match[1].strip()
        pairs = re.findall(r"(?s)<arg_key>(.*?)</arg_key>(?:\\n|\s)*<arg_value>(.*?)</arg_value>", match[2])
        arguments = {key.strip(): _glm_value(value, table.type_of(name, key.strip())) for key, value in pairs}
        calls += from_objects({"name": name, "parameters": arguments}, table)
    return QuirkParse(text[:start].strip(), tuple(calls))


def _glm_value(text: str, kind: str | None) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = literal(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return text
    if kind == "string" and not isinstance(value, str):
        return text if isinstance(value, dict | list) else str(value)
    return value


def _kimi(text: str, table: ToolTable) -> QuirkParse:
    start = text.find("<|tool_calls_section_begin|>")
    if start < 0:
        return QuirkParse(text)
    calls: list[QuirkCall] = []
    pattern = (
        r"(?s)<\|tool_call_begin\|>\s*([\w.]+:\d+|\d+)\s*<\|tool_call_argument_begin\|>\s*"
        r"(\{.*?\})\s*<\|tool_call_end\|>"
    )
    for identity, body in re.findall(pattern, text):
        name = kimi_name(identity, body, table)
        if name is not None:
            calls.append(QuirkCall(len(calls), name, body))
    return QuirkParse(text[:start], tuple(calls))


def kimi_name(identity: str, body: str, table: ToolTable) -> str | None:
    """The name in an id; a bare number is resolved by the arguments."""
    match = re.fullmatch(r"(?:functions\.)?([\w.]+):\d+", identity)
    if match:
        return match[1]
    try:
        keys = set(json.loads(body))
    except (ValueError, TypeError):
        return None
    fitting = [name for name, properties in table.parameters.items() if keys and keys <= set(properties)]
    return fitting[0] if fitting else None


def _pythonic(text: str, table: ToolTable) -> QuirkParse:
    text = text.replace("<|python_start|>", "").replace("<|python_end|>", "")
    begin = re.search(r"\[(?=[a-zA-Z]+\w*\(\s*(?:\)|[a-zA-Z]+\w*=))", text)
    end = max((match.end() for match in re.finditer(r"\)\s*\]", text)), default=0)
    if begin is None or end <= begin.start():
        return QuirkParse(text)
    content = text[: begin.start()] + text[end:]
    try:
        calls = python_calls(text[begin.start() : end], table)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return QuirkParse(content)
    return QuirkParse(content, tuple(calls))


def python_calls(code: str, table: ToolTable) -> list[QuirkCall]:
    """The calls of a Python list; anything unusual raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(code, mode="eval").body
    if not isinstance(tree, ast.List) or not all(isinstance(item, ast.Call) for item in tree.elts):
        raise ValueError(code)
    calls = []
    for place, item in enumerate(tree.elts):
        if not isinstance(item, ast.Call) or not isinstance(item.func, ast.Name):
            raise ValueError(code)
        if item.func.id not in table.places:
            continue
        arguments = {str(word.arg): _python_value(word.value) for word in item.keywords}
        calls.append(QuirkCall(place, item.func.id, dumped(arguments)))
    return calls


def _python_value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=elements):
            return [_python_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {key.value: _python_value(value) for key, value in pairs if isinstance(key, ast.Constant)}
        case _:
            raise ValueError("only literals")


def _qwen3_coder(text: str, table: ToolTable) -> QuirkParse:
    start = text.find("<tool_call>")
    if start < 0:
        return QuirkParse(text)
    blocks = re.findall(r"(?s)<tool_call>(.*?)</tool_call>", text) or [text[start + len("<tool_call>") :]]
    calls: list[QuirkCall] = []
    for block in blocks:
        for closed, open_ended in re.findall(r"(?s)<function=(?:(.*?)</function>|(.*))", block):
            name, sign, body = (closed or open_ended).partition(">")
            if not sign:
                continue
            arguments = {}
            for parameter in re.findall(
                r"(?s)<parameter=(.*?)(?:</parameter>|(?=<parameter=)|(?=</function>)|$)", body
            ):
                key, sign, value = parameter.partition(">")
                if sign:
                    value = value.removeprefix("\n").removesuffix("\n")
                    arguments[key] = coder_value(value, table.type_of(name, key))
            calls.append(QuirkCall(len(calls), name, dumped(arguments)))
    return QuirkParse(text[:start], tuple(calls))


def coder_value(text: str, kind: str | None) -> Any:
    """Raw text by its declared type; what does not fit stays text."""
    if text.lower() == "null":
        return None
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return text.strip().lower() == "true"
            case "object" | "array":
                try:
                    return json.loads(text)
                except ValueError:
                    return literal(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return text
    return text


_TOKENS = re.compile(r"<\|(?:call|end|return|start)\|>")
_MESSAGE = re.compile(
    r"(?s)(?:<\|start\|>assistant)?<\|channel\|>(?:analysis(?:<\|message\|>.*?)?"
    r"(?:<\|end\|>|<\|return\|>|(?=<\|start\|>)|\Z)"
    r"|(?P<channel>\w+)(?P<head>[^<]*)(?:<\|constrain\|>[^<]*)?(?:<\|message\|>(?P<body>.*?))?"
    r"(?:<\|call\|>|<\|end\|>|<\|return\|>|\Z))"
)


def _harmony(text: str, table: ToolTable) -> QuirkParse:
    if "<|start|>assistant<|channel|>commentary" not in text:
        return QuirkParse(text)
    calls: list[QuirkCall] = []
    parts: list[str] = []
    at = 0
    for match in _MESSAGE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        channel, head, body = (match["channel"], match["head"], match["body"])
        recipient = re.search(r"to=([\w.]+)", head or "")
        if channel == "commentary" and recipient and match[0].endswith("<|call|>") and body is not None:
            calls += harmony_call(recipient[1], body, len(calls), table)
        elif channel == "final" and body:
            parts.append(body)
    parts.append(text[at:])
    parts = [_TOKENS.sub("", part) for part in parts]
    content = " ".join(part for part in parts if part.strip() not in ("", "commentary"))
    return QuirkParse(content.strip(), tuple(calls))


def harmony_call(recipient: str, body: str, place: int, table: ToolTable) -> list[QuirkCall]:
    """The call of one message, or none if its tool is unknown or its JSON broken."""
    name = recipient.rsplit(".", 1)[-1]
    try:
        arguments = json.loads(body) if body.strip() else {}
    except ValueError:
        return []
    return [QuirkCall(place, name, dumped(arguments))] if name in table.places else []


_PARSERS: dict[str, Callable[[str, ToolTable], QuirkParse]] = {
    "hermes": _hermes,
    "qwen25": _qwen25,
    "llama3": _llama3,
    "mistral": _mistral,
    "deepseekv3": _deepseek(
        r"<｜tool▁call▁begin｜>.*<｜tool▁sep｜>(?P<name>.*)\n```json\n(?P<body>.*)\n```<｜tool▁call▁end｜>"
    ),
    "deepseekv31": _deepseek(r"<｜tool▁call▁begin｜>(?P<name>.*)<｜tool▁sep｜>(?P<body>.*)<｜tool▁call▁end｜>"),
    "glm45": _glm,
    "kimi_k2": _kimi,
    "pythonic": _pythonic,
    "qwen3_coder": _qwen3_coder,
    "gpt-oss": _harmony,
}
