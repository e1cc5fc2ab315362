"""The base class of every part of a scenario file, and how the models of its parts are walked."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

Data = dict[str, Any]
"""A scenario, or a part of one, as a file has it."""
T = TypeVar("T")


class Misplaced(ValueError):
    """Raised by a check across several parts; ``path`` leads to the wrong one, so that its line can
    be reported."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


class ScenarioPart(BaseModel):
    """A mapping in a scenario file; unknown keys are refused."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)


def declared(metadata: typing.Iterable[Any], kind: type[T]) -> T | None:
    """Return what the metadata of a field declare of this kind, as ``Annotated[int, Drawn(1, 2)]``
    does."""
    return next((item for item in metadata if isinstance(item, kind)), None)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation allows."""
    is_class = isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias)
    if is_class and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in typing.get_args(annotation):
        yield from models_in(inner)


def parts_below(
    model: type[BaseModel], path: str = ""
) -> Iterator[tuple[str, FieldInfo, type[BaseModel]]]:
    """Yield every model at or below the fields of a model, with the dotted key and the field that
    allow it."""
    for key, field in model.model_fields.items():
        for part in models_in(field.annotation):
            yield path + key, field, part
            yield from parts_below(part, f"{path}{key}.")
