"""Draws values for a field of a model, so that a new kind of fault is hunted without being named here."""

from __future__ import annotations

import random
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from sfusion.fakes.faults import Action, Distribution
from sfusion.fakes.faults.duration import seconds as read_seconds

DURATIONS = (0.0, 0.0013, 0.053, 0.317, 1.019, 2.531, 6.047, 20.071, 90.089)
"""No round numbers: the answer and the timeout of a request at the same moment would be a tie that nobody can judge."""
SHARES = (0.0, 0.01, 0.3, 0.5, 0.9, 1.0, 40.0)
NUMBERS = (0, 1, 2, 3, 7, 64, 1000, 100_000)
STATUSES = (200, 201, 202, 204, 301, 307, 400, 401, 404, 408, 413, 422, 425, 429, 429, 500, 502, 503, 503, 504, 599)
TEXTS = ("", "busy", "Internal Server Error", "<html>502</html>", "0", "null", '{"status": "Success"}', "été 🚀\n")
HEADERS: tuple[dict[str, str], ...] = ({}, {"Connection": "close"}, {"Retry-After": "2"}, {"X-Note": "a"})
_BY_NAME: dict[str, tuple[Any, ...]] = {
    "status": STATUSES,
    "headers": HEADERS,
    "retry_after": (None, None, 0, 0.5, 3, 12, "soon", "Fri, 31 Dec 1999 23:59:59 GMT"),
    "body": (None, *TEXTS, {}, [], {"detail": "no"}),
    "content_type": (None, "text/html", "application/json; charset=latin-1", "x"),
}
"""Fields whose type says too little about which values are interesting."""


def draw_action(kind: type[Action], draw: random.Random) -> dict[str, Any]:
    """Return an action of this kind as a scenario writes it."""
    fields = {
        name: draw_value(field, name, draw)
        for name, field in kind.model_fields.items()
        if field.is_required() or name == kind.kind or draw.random() < 0.5
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if kind.kind in kind.model_fields:
        return {kind.kind: fields.pop(kind.kind), **fields}
    return {kind.kind: fields or True}


def draw_value(field: FieldInfo, name: str, draw: random.Random) -> Any:
    """Return a value that the field accepts, None where that is allowed."""
    known = _BY_NAME.get(name, ())
    fitting = [value for value in known if _accepts(field, value)]
    return draw.choice(fitting) if fitting else _of_type(field.annotation, field.metadata, draw)


def _of_type(annotation: Any, metadata: list[Any], draw: random.Random) -> Any:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of_type(inner[0], [*inner[1:], *metadata], draw)
    if origin is Literal:
        return draw.choice(inner)
    if origin in (Union, types.UnionType):
        return _of_type(draw.choice(inner), metadata, draw)
    if annotation is Distribution:
        return draw_duration(draw)
    if annotation is bool:
        return draw.random() < 0.5
    if annotation is int:
        return draw.choice([one for one in NUMBERS if _within(one, metadata)] or [_least(metadata)])
    if annotation is float:
        durations = any(getattr(one, "func", None) is read_seconds for one in metadata)
        return draw.choice([one for one in (DURATIONS if durations else SHARES) if _within(one, metadata)])
    if annotation is str:
        return draw.choice([text for text in TEXTS if text])
    return None


def draw_duration(draw: random.Random, most: float = 90.0) -> Any:
    """Return a fixed duration or a distribution, as a scenario writes it."""
    fitting = [one for one in DURATIONS if one <= most]
    low, high = sorted(draw.sample(fitting, 2))
    return draw.choice([high, low, {"uniform": [low, high]}, {"choice": [low, high]}])


def _accepts(field: FieldInfo, value: Any) -> bool:
    if value is None:
        return not field.is_required() and field.default is None
    return _within(value, field.metadata) if isinstance(value, int | float) else True


def _within(value: float, metadata: list[Any]) -> bool:
    for one in metadata:
        match one:
            case Ge(bound) if not value >= bound:  # type: ignore[operator] # bounds of our models are numbers
                return False
            case Gt(bound) if not value > bound:  # type: ignore[operator]
                return False
            case Le(bound) if not value <= bound:  # type: ignore[operator]
                return False
            case Lt(bound) if not value < bound:  # type: ignore[operator]
                return False
    return True


def _least(metadata: list[Any]) -> int:
    return max((int(one.ge) for one in metadata if isinstance(one, Ge)), default=0)  # type: ignore[call-overload]
