"""Validating JSON values as pydantic 2.6 does in lax mode, with the same errors in the same order and wording.

The real server pins pydantic 2.6. Any version may be installed here, and later ones coerce and word differently,
so the rules are spelled out: what is accepted, what it becomes, and what an error says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Loc = tuple[str | int, ...]
Problem = dict[str, Any]

_URL = "https://errors.pydantic.dev/2.6/v/"
_FLOAT_TEXT = re.compile(r"[+-]?(?:inf|infinity|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE | re.ASCII)
_INT_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_ZERO_FRACTION = re.compile(r"\.0*", re.ASCII)
_LONGEST_INT = 4300
_BOOLEANS = {
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
}


class Refused(Exception):
    """Raised for a value that is not valid, with all problems found in it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(f"{len(problems)} problems")
        self.problems = list(problems)


class Type(Protocol):
    def check(self, value: Any, loc: Loc) -> Any:
        """Return the value as the server would see it; raise Refused."""

    def describe(self) -> dict[str, Any]: ...


def problem(kind: str, loc: Loc, message: str, value: Any, ctx: dict[str, Any] | None = None) -> Problem:
    """One entry of the detail of a 422, keys in pydantic's order."""
    found: Problem = {"type": kind, "loc": loc, "msg": message, "input": value}
    if ctx is not None:
        found["ctx"] = ctx
    found["url"] = _URL + kind
    return found


def has_surrogate(text: str) -> bool:
    """True if the text contains a lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _not_unicode(loc: Loc, value: str) -> Refused:
    message = "Input should be a valid string, unable to parse raw data as a unicode string"
    return Refused(problem("string_unicode", loc, message, value))


def _without_underscores(text: str) -> str | None:
    if "_" not in text or text.startswith("_") or text.endswith("_") or "__" in text:
        return None
    return text.replace("_", "")


class Text:
    """A string; nothing is coerced."""

    def check(self, value: Any, loc: Loc) -> str:
        """Strings pass unchanged, lone surrogates included."""
        if not isinstance(value, str):
            raise Refused(problem("string_type", loc, "Input should be a valid string", value))
        return value

    def describe(self) -> dict[str, Any]:
        return {"type": "string"}


class Float:
    """A float: numbers, booleans, and strings that contain a number."""

    def check(self, value: Any, loc: Loc) -> float:
        if isinstance(value, float):
            return value
        if isinstance(value, int):
            try:
                return float(value)
            except OverflowError:
                pass
        if isinstance(value, str):
            if has_surrogate(value):
                raise _not_unicode(loc, value)
            for text in (value, _without_underscores(value)):
                if text is not None and _FLOAT_TEXT.fullmatch(text):
                    return float(text)
            message = "Input should be a valid number, unable to parse string as a number"
            raise Refused(problem("float_parsing", loc, message, value))
        raise Refused(problem("float_type", loc, "Input should be a valid number", value))

    def describe(self) -> dict[str, Any]:
        return {"type": "number"}


class Integer:
    """An int: whole numbers, booleans, floats without a fraction, and strings that contain a whole number."""

    def check(self, value: Any, loc: Loc) -> int:
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return self._from_float(value, loc)
        if isinstance(value, str):
            return self._from_text(value, loc)
        raise Refused(problem("int_type", loc, "Input should be a valid integer", value))

    def _from_float(self, value: float, loc: Loc) -> int:
        if not math.isfinite(value):
            raise Refused(problem("finite_number", loc, "Input should be a finite number", value))
        if value != int(value):
            message = "Input should be a valid integer, got a number with a fractional part"
            raise Refused(problem("int_from_float", loc, message, value))
        if not -(2.0**63) < value < 2.0**63:
            raise self._too_long(value, loc)
        return int(value)

    def _from_text(self, value: str, loc: Loc) -> int:
        if has_surrogate(value):
            raise _not_unicode(loc, value)
        if len(value) > _LONGEST_INT:
            raise self._too_long(value, loc)
        whole, dot, fraction = value.partition(".")
        candidates = [value, _without_underscores(value)]
        if dot and _ZERO_FRACTION.fullmatch(dot + fraction):
            candidates.append(whole)
        for text in candidates:
            if text is not None and _INT_TEXT.fullmatch(text):
                return int(text)
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise Refused(problem("int_parsing", loc, message, value))

    def _too_long(self, value: object, loc: Loc) -> Refused:
        message = "Unable to parse input string as an integer, exceeded maximum size"
        return Refused(problem("int_parsing_size", loc, message, value))

    def describe(self) -> dict[str, Any]:
        return {"type": "integer"}


class Boolean:
    """A bool: true and false, 0 and 1, and the usual words."""

    def check(self, value: Any, loc: Loc) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            if has_surrogate(value):
                raise _not_unicode(loc, value)
            if value.lower() in _BOOLEANS:
                return _BOOLEANS[value.lower()]
        elif isinstance(value, int | float):
            if value in (0, 1):
                return bool(value)
            if (isinstance(value, float) and not value.is_integer()) or not -(2**63) <= value < 2**63:
                raise Refused(problem("bool_type", loc, "Input should be a valid boolean", value))
        else:
            raise Refused(problem("bool_type", loc, "Input should be a valid boolean", value))
        message = "Input should be a valid boolean, unable to interpret input"
        raise Refused(problem("bool_parsing", loc, message, value))

    def describe(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice:
    """One of several words."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = frozenset(words)
        self._ordered = tuple(words)
        quoted = [f"'{word}'" for word in words]
        self._expected = " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))

    def check(self, value: Any, loc: Loc) -> str:
        if isinstance(value, str):
            if value in self.words:
                return value
            if has_surrogate(value):
                raise _not_unicode(loc, value)
        ctx = {"expected": self._expected}
        raise Refused(problem("literal_error", loc, f"Input should be {self._expected}", value, ctx))

    def describe(self) -> dict[str, Any]:
        if len(self._ordered) == 1:
            return {"const": self._ordered[0]}
        return {"type": "string", "enum": list(self._ordered)}


class Anything:
    """Any value, unchanged."""

    def check(self, value: Any, loc: Loc) -> Any:
        return value

    def describe(self) -> dict[str, Any]:
        return {}


class Maybe:
    """Null, or a value of another type."""

    def __init__(self, inner: Type) -> None:
        self.inner = inner

    def check(self, value: Any, loc: Loc) -> Any:
        return None if value is None else self.inner.check(value, loc)

    def describe(self) -> dict[str, Any]:
        return {"anyOf": [self.inner.describe(), {"type": "null"}]}


class ListOf:
    def __init__(self, inner: Type) -> None:
        self._inner = inner

    def check(self, value: Any, loc: Loc) -> list[Any]:
        """Check all items, and report all problems."""
        if value == []:
            return []
        if not isinstance(value, list):
            raise Refused(problem("list_type", loc, "Input should be a valid list", value))
        checked, problems = [], []
        for index, item in enumerate(value):
            try:
                checked.append(self._inner.check(item, (*loc, index)))
            except Refused as refused:
                problems.extend(refused.problems)
        if problems:
            raise Refused(*problems)
        return checked

    def describe(self) -> dict[str, Any]:
        return {"type": "array", "items": self._inner.describe()}


class DictOf:
    """A mapping with string keys."""

    def __init__(self, inner: Type) -> None:
        self._inner = inner

    def check(self, value: Any, loc: Loc) -> dict[str, Any]:
        """Check all values, and report all problems."""
        if value == {}:
            return {}
        if not isinstance(value, dict):
            raise Refused(problem("dict_type", loc, "Input should be a valid dictionary", value))
        checked: dict[str, Any] = {}
        problems = []
        for key, item in value.items():
            try:
                checked[key] = self._inner.check(item, (*loc, shown_key(key)))
            except Refused as refused:
                problems.extend(refused.problems)
        if problems:
            raise Refused(*problems)
        return checked

    def describe(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self._inner.describe()}


def shown_key(key: str) -> str:
    """A key as it appears in the location of a problem: what UTF-8 cannot encode is replaced."""
    return key.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if has_surrogate(key) else key


class OneOf:
    """A union: an exact match of any member wins, then the first member that can coerce the value."""

    def __init__(self, members: Mapping[str, tuple[type[Any], Type]]) -> None:
        self._members = members

    def check(self, value: Any, loc: Loc) -> Any:
        """Return the value of the best member; report the problems of all members when none fits."""
        problems: list[Problem] = []
        fitting = []
        for tag, (exact, member) in self._members.items():
            try:
                made = member.check(value, (*loc, tag))
            except Refused as refused:
                problems.extend(refused.problems)
            else:
                if type(value) is exact:
                    return made
                fitting.append(made)
        if fitting:
            return fitting[0]
        raise Refused(*problems)

    def describe(self) -> dict[str, Any]:
        return {"anyOf": [member.describe() for _, member in self._members.values()]}


_REQUIRED = object()
_ABSENT = object()


_PLAIN: dict[type, type] = {Text: str, Float: float, Integer: int}


def _plain(kind: Type) -> frozenset[type]:
    """The types whose values pass unchanged."""
    if isinstance(kind, Maybe):
        return _plain(kind.inner) | {type(None)}
    return frozenset({_PLAIN[type(kind)]}) if type(kind) in _PLAIN else frozenset()


class Model:
    """An object with named fields; unknown fields are ignored."""

    def __init__(self, fields: Mapping[str, Type | tuple[Type, Any]], *, name: str) -> None:
        self.name = name
        self.fields: dict[str, tuple[Type, Any]] = {
            field: entry if isinstance(entry, tuple) else (entry, _REQUIRED) for field, entry in fields.items()
        }
        # Most values are of exactly the wanted type and need no check.
        self._steps = [(field, kind, default, _plain(kind)) for field, (kind, default) in self.fields.items()]

    def check(self, value: Any, loc: Loc) -> dict[str, Any]:
        """Return all fields with their defaults, in the order of the schema."""
        if not isinstance(value, dict):
            raise Refused(self._not_an_object(value, loc))
        checked: dict[str, Any] = {}
        problems: list[Problem] = []
        for field, kind, default, plain in self._steps:
            item = value.get(field, _ABSENT)
            if type(item) in plain:
                checked[field] = item
            elif item is not _ABSENT:
                try:
                    checked[field] = kind.check(item, (*loc, field))
                except Refused as refused:
                    problems.extend(refused.problems)
            elif default is _REQUIRED:
                problems.append(problem("missing", (*loc, field), "Field required", value))
            else:
                checked[field] = default.copy() if isinstance(default, dict | list) else default
        if problems:
            raise Refused(*problems)
        return checked

    def _not_an_object(self, value: Any, loc: Loc) -> Problem:
        # FastAPI validates the body, nested models included, with from_attributes.
        message = "Input should be a valid dictionary or object to extract fields from"
        return problem("model_attributes_type", loc, message, value)

    def describe(self) -> dict[str, Any]:
        properties = {}
        for field, (kind, default) in self.fields.items():
            properties[field] = kind.describe()
            if default is not _REQUIRED:
                properties[field]["default"] = default
        required = [field for field, (_, default) in self.fields.items() if default is _REQUIRED]
        schema: dict[str, Any] = {"title": self.name, "type": "object", "properties": properties}
        return {**schema, "required": required} if required else schema
