"""``@command``: a function becomes a command, and a dataclass the options of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import typer

_METAVARS: dict[Any, str] = {Path: "FILE", int: "N", float: "NUMBER", str: "TEXT", bool: ""}

Function = TypeVar("Function", bound=Callable[..., int | None])

declared: dict[str, Callable[..., None]] = {}
"""The function of each module that declares a command."""


def option(
    help: str,
    metavar: str | None = None,
    panel: str | None = None,
    *,
    names: str | tuple[str, ...] = (),
    **more: Any,
) -> Any:
    """Declare an option; a name or metavar that is left out follows from its parameter."""
    given = (names,) if isinstance(names, str) else names
    return typer.Option(*given, help=help, metavar=metavar, rich_help_panel=panel, **more)


def command(function: Function) -> Function:
    """Declare the command of a module.

    Its help is the module's docstring, its exit code what the function returns. Parameters are
    declared as Typer wants them. A parameter whose type is a dataclass stands for all fields of it.
    """
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for name, annotation in _hints(function).items():
        if is_dataclass(annotation):
            groups[name] = annotation
            hints = _hints(annotation)
            for declared_field in fields(annotation):
                hint = hints[declared_field.name]
                default = _default(declared_field)
                parameters.append(_parameter(declared_field.name, hint, default))
        elif name != "return":
            default = signature(function).parameters[name].default
            parameters.append(_parameter(name, annotation, default))

    def run(**values: Any) -> None:
        for name, group in groups.items():
            names = [declared_field.name for declared_field in fields(group)]
            values[name] = group(**{key: values.pop(key) for key in names})
        code = function(**values)
        if code:
            raise typer.Exit(code)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # what inspect and Typer look at
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    declared[function.__module__] = run
    return function


def _hints(declaring: Any) -> dict[str, Any]:
    return get_type_hints(declaring, include_extras=True)


def _default(declared_field: Field[Any]) -> Any:
    if declared_field.default_factory is not MISSING:
        return declared_field.default_factory()
    if declared_field.default is MISSING:
        return Parameter.empty
    return declared_field.default


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    """Make the parameter of an option.

    Typer shows the Python type of what has no metavar, and gives every flag a second name.
    """
    kind, declaration, *_ = get_args(annotation)
    if kind is bool and default is False and declaration.default is ...:
        declaration.param_decls = (f"--{name.replace('_', '-')}",)
    if default is None:
        declaration.show_default = False
    if declaration.metavar is None:
        declaration.metavar = _metavar(kind)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _metavar(kind: Any) -> str:
    """The values of an enumeration, or a word for a type; that of ``X | None`` is that of X."""
    types = [inner for inner in (*get_args(kind), kind) if inner is not type(None)]
    first = types[0]
    if issubclass(first, Enum):
        return "|".join(choice.value for choice in first)
    return _METAVARS[first]
