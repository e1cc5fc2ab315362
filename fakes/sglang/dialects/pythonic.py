"""What sglang does with pythonic calls."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import (
    CallSample,
    Made,
    bad_escape,
    bad_sibling,
    maker_of,
    refused,
    unclosed_string,
)
from sfusion.fakes.sglang.quirk_text import QuirkStream, ToolTable


def _parse(text: str, table: ToolTable) -> Extract:
    text = text.replace("<|python_start|>", "").replace("<|python_end|>", "")
    begin = re.search(r"\[(?=[a-zA-Z]+\w*\(\s*(?:\)|[a-zA-Z]+\w*=))", text)
    end = max((match.end() for match in re.finditer(r"\)\s*\]", text)), default=0)
    if begin is None or end <= begin.start():
        return Extract(text)
    content = text[: begin.start()] + text[end:]
    try:
        calls = _calls(text[begin.start() : end], table)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return Extract(content)
    return Extract(content, calls)


def _calls(code: str, table: ToolTable) -> list[CallPiece]:
    """Return the calls of a Python list; raises for anything unusual."""
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
        arguments = {str(word.arg): _value(word.value) for word in item.keywords}
        calls.append(CallPiece(place, item.func.id, arguments_text(arguments)))
    return calls


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=elements):
            return [_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {key.value: _value(value) for key, value in pairs if isinstance(key, ast.Constant)}
        case _:
            raise ValueError("only literals")


class PythonicQuirkStream(QuirkStream):
    """Waits for the bracket that closes the list, also counting brackets in strings; text behind it waits as well."""

    def feed(self, delta: str) -> Extract:
        self.buffer = (self.buffer + delta).replace("<|python_start|>", "").replace("<|python_end|>", "")
        begin = self.buffer.find("[")
        if begin < 0:
            return Extract(self._take_plain("<|python_start|>", "<|python_end|>"))
        result = Extract(self.buffer[:begin])
        self.buffer = self.buffer[begin:]
        end = self._end()
        if not end:
            return result
        code, self.buffer = self.buffer[:end], self.buffer[end:]
        if not re.match(r"\[[a-zA-Z]+\w*\(\s*(?:\)|[a-zA-Z]+\w*=)", code) or not re.search(r"\)\s*\]\Z", code):
            result.content += code
        else:
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                result.pieces += _calls(code, self.table)
        return result

    def _end(self) -> int:
        depth = 0
        for place, char in enumerate(self.buffer):
            depth += {"[": 1, "]": -1}.get(char, 0)
            if depth == 0:
                return place + 1
        return 0


def _unclosed(sample: CallSample) -> str:
    return sample.form.write_call(sample.name, sample.arguments())[:-1]


def _bad_escape(sample: CallSample) -> Made:
    value = "re.findall(r\"\\d+\", 'a1')"
    return bad_escape(sample, value, value.replace("'", "\\'"))


DIALECTS = (
    Dialect(
        "pythonic",
        parse=_parse,
        stream=PythonicQuirkStream,
        has_grammar=False,
        malformed={
            "bad_escape": _bad_escape,
            "mixed_escape": maker_of("mixed_escape"),
            "raw_newline": maker_of("raw_newline"),
            "unescaped_quotes": lambda s: refused(s.raw("print('hello')"), "bad_literal"),
            "unbalanced": lambda s: refused(s.section(_unclosed(s)), "unbalanced"),
            "arguments_list": lambda s: refused(s.spoiled(repr(s.subject[1])), "positional_argument"),
            "bad_sibling": lambda s: bad_sibling(s, _unclosed(s), "unbalanced"),
            "unclosed_string": lambda s: unclosed_string(s, "'", "unbalanced"),
        },
    ),
)
