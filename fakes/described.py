"""Descriptions of the fields of a model: the texts below them in its source.

Pydantic can read them itself (``use_attribute_docstrings``), but does so for every class that is
made, and few commands show a description.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def described_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model, each with its description."""
    for name, field in model.model_fields.items():
        if field.description is None:
            field.description = _described_in(model, name)
    return model.model_fields


def _described_in(model: type[BaseModel], name: str) -> str | None:
    """Return the text below a field, of the class that declares it."""
    owners = (cls for cls in model.__mro__ if name in inspect.get_annotations(cls))
    owner = next(owners, None)
    return None if owner is None else _texts_below_fields(owner).get(name)


@cache
def _texts_below_fields(cls: type) -> dict[str, str]:
    """Return the texts below the attributes of a class; none if its source is not there."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for attribute, text in pairwise(definition.body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(description))),
            ):
                found[name] = inspect.cleandoc(description)
    return found
