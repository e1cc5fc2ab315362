"""Draws the fields of a model as their declarations say, or by their type: a pure function of a
random stream."""

from __future__ import annotations

import random
import types
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from ....fakes.faults import KINDS, Action, Distribution, Rule
from ....fakes.faults.duration import seconds
from ....fakes.fields import Drawn
from .base import Data, declared

_DURATIONS = (0.0, 0.0013, 0.053, 0.317, 1.019, 2.531, 6.047, 20.071, 90.089)
"""Seconds, chosen from a moment to beyond all timeouts. No round numbers: the answer and the
timeout of a request at the same moment would be a tie that nobody can judge."""
_VALUES: dict[Any, tuple[Any, ...]] = {
    int: (0, 1, 2, 3, 7, 64, 1000, 100_000),
    float: (0.0, 0.3, 0.5, 1.0),
    str: (
        "busy",
        "Internal Server Error",
        "<html>502</html>",
        "0",
        "null",
        '{"status": "Success"}',
        "été 🚀\n",
    ),
}


class Drawing:
    """A case that is being drawn: its random stream, the features that it has, and what it has so
    far."""

    def __init__(
        self,
        stream: random.Random,
        features: Collection[str] = (),
        tool_keys: frozenset[str] | None = None,
    ) -> None:
        self.random = stream
        self.features = frozenset(features)
        self.tool_keys = tool_keys
        """Keys of the tool's config that may be set; None for all."""
        self.data: Data = {}

    def has(self, *features: str) -> bool:
        """Has the case one of these features?"""
        return not self.features.isdisjoint(features)

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    def wants(self, drawn: Drawn) -> bool:
        """Has the case what is drawn so?"""
        if drawn.when and not self.has(*drawn.when):
            return False
        return self.happens(1.0 if drawn.share is None else drawn.share)

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def part(self, model: type[BaseModel], into: Data | None = None) -> Data:
        """Return a part of a file: every field of the model that is declared as drawn."""
        found: Data = {} if into is None else into
        for name, field in model.model_fields.items():
            drawn = declared(field.metadata, Drawn)
            if drawn is None or not self.wants(drawn):
                continue
            value = self.value(field, found)
            if value is None or value == field.default:
                continue
            if drawn.values or value not in ({}, []):
                found[name] = value
        return found

    def value(self, field: FieldInfo, part: Data | None = None) -> Any:
        """Return a value for a field; ``part`` is what has been drawn beside it."""
        drawn = declared(field.metadata, Drawn) or Drawn()
        if drawn.how is not None:
            return drawn.how(self, part)
        if drawn.values:
            return self.random.choice(drawn.values)
        return self._of_type(field.annotation, field.metadata)

    def action(self, kind: type[Action]) -> Data:
        """Return a fault of this kind."""
        fields: Data = {}
        for name, field in kind.model_fields.items():
            if field.is_required() or name == kind.kind or self.happens(0.5):
                value = self.value(field)
                if value is not None:
                    fields[name] = value
        if kind.kind in kind.model_fields:
            return {kind.kind: fields.pop(kind.kind), **fields}
        return {kind.kind: fields or True}

    def rule(
        self, name: str, conditions: Data | None = None, kinds: Mapping[str, type[Action]] = KINDS
    ) -> Data:
        """Return a fault rule of any kind, and with any conditions unless they are given."""
        if conditions is None:
            conditions = self.part(Rule) or {"every": self.random.randint(1, 4)}
        rule: Data = {"name": name, **conditions}
        kind = kinds[self.one(*sorted(kinds))]
        if self.happens(0.7):
            rule["phase"] = self.one(*kind.phases)
        rule["what"] = self.action(kind)
        if self.happens(0.15):
            rule["what"] = [rule["what"], self.action(kinds[self.one(*sorted(kinds))])]
        return rule

    def duration(self, most: float = 90.0) -> Any:
        """Return a fixed duration or a distribution."""
        fitting = [duration for duration in _DURATIONS if duration <= most]
        low, high = sorted(self.random.sample(fitting, 2))
        return self.one(high, low, {"uniform": [low, high]}, {"choice": [low, high]})

    def _of_type(self, annotation: Any, metadata: list[Any]) -> Any:
        """Return a value for an annotation without a declaration; None if none is known."""
        origin = get_origin(annotation)
        inner = get_args(annotation)
        if origin is Annotated:
            return self._of_type(inner[0], [*inner[1:], *metadata])
        if origin is Literal:
            return self.one(*inner)
        if origin in (Union, types.UnionType):
            alternatives = [kind for kind in inner if kind is not types.NoneType]
            return self._of_type(self.one(*alternatives), metadata)
        if annotation is Distribution:
            return self.duration()
        if annotation is bool:
            return self.happens(0.5)
        if annotation in (int, float, str):
            return self._plain(annotation, metadata)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            kind = annotation.model_fields.get("kind")
            return self.part(annotation, {} if kind is None else {"kind": kind.default})
        return None

    def _plain(self, annotation: Any, metadata: list[Any]) -> Any:
        """Return a number or a text that the metadata allow."""
        is_duration = any(getattr(item, "func", None) is seconds for item in metadata)
        known = _DURATIONS if is_duration else _VALUES[annotation]
        return self.one(*(value for value in known if _fits(value, annotation, metadata)))


def _fits(value: Any, annotation: Any, metadata: list[Any]) -> bool:
    try:
        TypeAdapter(Annotated[(annotation, *metadata, None)]).validate_python(value)
    except ValueError:
        return False
    return True
