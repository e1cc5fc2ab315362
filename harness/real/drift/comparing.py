"""Compare two answers to one probe field by field, ignoring what changes from run to run. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sfusion_tools.bounded_input import parse_json

from ...terminal import printable
from ..probes.model import Probe
from ..probes.raw_http import ProbeAnswer
from ..probes.scrubbing import mask

Kind = Literal[
    "no-answer",
    "http-status",
    "header-missing",
    "header-extra",
    "header-value",
    "header-order",
    "header-case",
    "not-json",
    "key-missing",
    "key-extra",
    "key-renamed",
    "key-order",
    "type",
    "length",
    "value",
    "text",
    "blanks",
    "number-form",
    "body-form",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SHOWN = 60
"""Characters of a text that are shown (chosen)."""
_BEFORE = 12
"""Characters before the first that differs (chosen)."""


@dataclass(frozen=True)
class Difference:
    """What two servers answered in the same place."""

    probe: str
    place: str
    kind: Kind
    left: Any
    right: Any

    def shown(self, width: int = _SHOWN) -> tuple[str, str]:
        """Both values, one line each; long texts are cut to start shortly before they diverge."""
        left = _written(self.left)
        right = _written(self.right)
        if max(len(left), len(right)) <= width:
            return left, right
        same = 0
        while same < min(len(left), len(right)) and left[same] == right[same]:
            same += 1
        start = max(0, same - _BEFORE)
        return _cut(left, start, width), _cut(right, start, width)


def matches(place: str, pattern: str, *, below: bool = True) -> bool:
    """Does the pattern name the place, or one above it? ``[*]`` is any index, ``*`` any name."""
    steps = re.escape(pattern).replace(r"\[\*\]", r"\[\d+\]").replace(r"\*", r"[^.\[]*")
    return re.fullmatch(rf"{steps}(?:[.\[].*)?" if below else steps, place, re.DOTALL) is not None


def _written(value: Any) -> str:
    if value is None:
        return "null"
    return printable(json.dumps(value, ensure_ascii=False))


def _cut(text: str, start: int, width: int) -> str:
    part = text[start : start + width]
    return ("…" if start else "") + part + ("…" if len(text) > start + width else "")


_UNSTABLE = tuple(
    (re.compile(pattern), mark)
    for pattern, mark in (
        (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "<DATE>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<DATE>"),
        (r"<IPYKERNEL>\.py|\b(?<=\()\d{6,}\.py(?=, line)|<CELL>\.py", "<CELL>.py"),
        (r"<PY>(?:/(?:site|dist)-packages)+", "<PY>"),
        (r"\bin \d+\.\d+s\b", "in <SECONDS>"),
        (r"platform linux -- Python [\d.]+, pytest-[\d.]+, pluggy-[\d.]+", "<PYTEST>"),
        (r"plugins: [^\n]*\n", ""),
        # Python versions underline different parts of a line, or none.
        (r"(?m)^[ \t]*[\^~][ \t^~]*\n?", ""),
        (r"\b(?:aarch64|x86_64)-linux-gnu", "<ARCH>"),
        (r"Python 3\.\d+\.\d+", "<PYTHON>"),
        (r"Node\.js v[\d.]+", "<NODE>"),
    )
)

MEASURED = "execution_time"
"""The key of measured seconds."""
DRAWN = "traceback"
"""The key of lines that each version of Python and IPython formats differently."""


def steady(text: str) -> str:
    """Mask what differs between runs and machines."""
    text = mask(text)
    for pattern, mark in _UNSTABLE:
        text = pattern.sub(mark, text)
    return text


def is_measured(key: str, value: Any) -> bool:
    return key == MEASURED and isinstance(value, int | float) and not isinstance(value, bool)


def is_drawn(key: str, value: Any) -> bool:
    return key == DRAWN and isinstance(value, list) and bool(value)


Found = tuple[str, Kind, Any, Any]
_NOT_JSON = object()


class JsonNumber(float):
    """A JSON number that keeps the text it was written as."""

    text: str

    def __new__(cls, text: str) -> JsonNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number


def compare(probe: Probe, left: ProbeAnswer, right: ProbeAnswer) -> list[Difference]:
    """Return the differences, except in places that the probe allows to vary."""
    found: list[Difference] = []
    for place, kind, was, now in _answers(probe, left, right):
        if not any(_may_vary(place, kind, pattern) for pattern in probe.varies):
            found.append(Difference(probe=probe.id, place=place, kind=kind, left=was, right=now))
    return found


def _may_vary(place: str, kind: Kind, pattern: str) -> bool:
    """A place that varies may have any value, but of the same type."""
    return matches(place, pattern) and not (
        kind in ("type", "not-json") and matches(place, pattern, below=False)
    )


def _answers(probe: Probe, left: ProbeAnswer, right: ProbeAnswer) -> Iterator[Found]:
    if left.failure or right.failure:
        if bool(left.failure) != bool(right.failure):
            was = left.failure or f"status {left.status}"
            now = right.failure or f"status {right.status}"
            yield "answer", "no-answer", was, now
        return
    if left.status != right.status:
        # With another status everything else differs too; listing that would hide the cause.
        yield "status", "http-status", left.status, right.status
        return
    yield from _headers(left, right, length_counts=probe.method == "HEAD")
    yield from _bodies(left.body, right.body)


def _headers(left: ProbeAnswer, right: ProbeAnswer, *, length_counts: bool) -> Iterator[Found]:
    was = _by_name(left)
    now = _by_name(right)
    for name in was:
        if name not in now:
            yield f"header.{name}", "header-missing", was[name], None
    for name in now:
        if name not in was:
            yield f"header.{name}", "header-extra", None, now[name]
    common = [name for name in was if name in now]
    for name in common:
        if name == "content-length" and not length_counts:
            continue  # measured seconds vary in digits; reading the body checked the length
        if steady(was[name]) != steady(now[name]):
            yield f"header.{name}", "header-value", was[name], now[name]
    order = [name for name in now if name in was]
    if common != order:
        yield "headers", "header-order", common, order
    yield from _spelling(left, right, common)


def _spelling(left: ProbeAnswer, right: ProbeAnswer, common: Sequence[str]) -> Iterator[Found]:
    """Compare which letters of the headers' names are capitals."""
    was = {name.lower(): name for name, _ in left.headers}
    now = {name.lower(): name for name, _ in right.headers}
    unlike = [name for name in common if was[name] != now[name]]
    if unlike:
        spelt_left = [was[name] for name in unlike]
        spelt_right = [now[name] for name in unlike]
        yield "headers", "header-case", spelt_left, spelt_right


def _by_name(answer: ProbeAnswer) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in answer.headers:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _bodies(left: bytes, right: bytes) -> Iterator[Found]:
    texts = [body.decode("utf-8", "backslashreplace") for body in (left, right)]
    was, now = (_read(text) for text in texts)
    if was is _NOT_JSON and now is _NOT_JSON:
        yield from _texts("body", *texts)
    elif was is _NOT_JSON or now is _NOT_JSON:
        yield "body", "not-json", texts[0], texts[1]
    else:
        yield from _values("body", "", was, now)
        forms = [_form(text) for text in texts]
        if forms[0] != forms[1]:
            yield "body", "body-form", forms[0], forms[1]


def _read(text: str) -> Any:
    try:
        parse_json(text, "answer")  # bounds its depth
        return json.loads(text, parse_float=JsonNumber)
    except ValueError:
        return _NOT_JSON


def _form(text: str) -> str:
    """How the JSON is written: with or without whitespace, with or without escapes."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    spaced = "spaced" if re.search(r"\s", outside) else "compact"
    if re.search(r"\\u(?!00[01][0-9a-fA-F])(?![dD][89a-fA-F])", text):
        return f"{spaced}, escaped"
    return spaced


def _values(place: str, key: str, was: Any, now: Any) -> Iterator[Found]:
    kinds = _type(was), _type(now)
    if kinds[0] != kinds[1]:
        yield place, "type", was, now
    elif isinstance(was, dict):
        yield from _objects(place, was, now)
    elif isinstance(was, list):
        yield from _lists(place, key, was, now)
    elif isinstance(was, str):
        yield from _texts(place, was, now)
    elif isinstance(was, JsonNumber):
        yield from _numbers(place, key, was, now)
    elif was != now and not is_measured(key, was):
        yield place, "value", was, now


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "float" if isinstance(value, float) else type(value).__name__


def _objects(place: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Found]:
    gone = [name for name in was if name not in now]
    new = [name for name in now if name not in was]
    for name in list(gone):
        # A value of the same type at the same position under another name counts as renamed.
        other = list(now)[list(was).index(name)] if list(was).index(name) < len(now) else None
        if other in new and _type(was[name]) == _type(now[other]):
            gone.remove(name)
            new.remove(other)
            yield f"{place}.{name}", "key-renamed", name, other
    for name in gone:
        yield f"{place}.{name}", "key-missing", was[name], None
    for name in new:
        yield f"{place}.{name}", "key-extra", None, now[name]
    common = [name for name in was if name in now]
    order = [name for name in now if name in was]
    if common != order:
        yield place, "key-order", common, order
    for name in common:
        yield from _values(f"{place}.{name}", name, was[name], now[name])


def _lists(place: str, key: str, was: list[Any], now: list[Any]) -> Iterator[Found]:
    if is_drawn(key, was) and is_drawn(key, now):
        return
    if len(was) != len(now):
        yield place, "length", was, now
        return
    for number, (left, other) in enumerate(zip(was, now, strict=True)):
        yield from _values(f"{place}[{number}]", "", left, other)


def _texts(place: str, was: str, now: str) -> Iterator[Found]:
    if was == now:
        return
    one = steady(was)
    other = steady(now)
    if one == other:
        return
    same = "".join(one.split()) == "".join(other.split())
    yield place, "blanks" if same else "text", one, other


def _numbers(place: str, key: str, was: JsonNumber, now: JsonNumber) -> Iterator[Found]:
    if is_measured(key, was):
        # The values never repeat, but both should be written as Python writes floats.
        if (was.text == repr(float(was))) != (now.text == repr(float(now))):
            yield place, "number-form", was.text, now.text
    elif float(was) != float(now) and not (was != was and now != now):
        yield place, "value", float(was), float(now)
    elif was.text != now.text:
        yield place, "number-form", was.text, now.text
