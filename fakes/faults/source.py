"""Reading fault rules from YAML or data, with errors that say where, what was found and what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sfusion.fakes.errors import FaultError
from sfusion.fakes.faults.action import KINDS, Action
from sfusion.fakes.faults.rule import Rule
from sfusion_tools.errors import YamlError, near
from sfusion_tools.marked_yaml import Marked, parse_marked, read_marked

Kinds = Mapping[str, type[Action]]


def load_rules(path: str | Path, *, kinds: Kinds = KINDS) -> list[Rule]:
    """Read the rules of a YAML file."""
    try:
        marked = read_marked(Path(path))
    except YamlError as error:
        raise FaultError(str(error)) from None
    return read_rules(marked, where=str(path), kinds=kinds)


def parse_rules(text: str, *, where: str = "faults", kinds: Kinds = KINDS) -> list[Rule]:
    """Read the rules of a YAML text; JSON is YAML too."""
    try:
        marked = parse_marked(text, where)
    except YamlError as error:
        raise FaultError(str(error)) from None
    return read_rules(marked, where=where, kinds=kinds)


def read_rules(source: object, *, where: str = "faults", kinds: Kinds = KINDS) -> list[Rule]:
    """Read rules from data: a list of mappings, or a mapping with the single key ``faults``."""
    data = source.data if isinstance(source, Marked) else source
    inside: tuple[str, ...] = ()
    if isinstance(data, dict):
        extra = sorted(str(key) for key in data if key != "faults")
        if "faults" not in data or extra:
            odd = extra[0] if extra else "nothing"
            raise FaultError(f"{where}: expected a list of rules or a mapping 'faults: [...]', found {odd!r}")
        data, inside = data["faults"], ("faults",)
    if data is None:
        return []
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise FaultError(f"{where}: expected a list of rules, found {data!r}")
    rules = []
    for index, item in enumerate(data):
        place = str(source.place((*inside, index))) if isinstance(source, Marked) else where
        if not isinstance(item, Rule):
            item = read_rule(item, where=f"{place}: rule {index + 1}", kinds=kinds)
        rules.append(item)
    return rules


def read_rule(item: object, *, where: str = "rule", kinds: Kinds = KINDS) -> Rule:
    """Read one rule; raise FaultError with every mistake in it."""
    if not isinstance(item, dict):
        raise FaultError(f"{where}: expected a mapping such as {{first: 3, what: {{status: 503}}}}, found {item!r}")
    name = item.get("name")
    label = f"{where} ({name})" if name else where
    try:
        return Rule.model_validate(item, context={"kinds": kinds})
    except ValidationError as error:
        raise FaultError("; ".join(f"{label}: {_sentence(one)}" for one in error.errors())) from None


def _sentence(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        if len(error["loc"]) > 1:
            return f"unknown key {place!r}"
        key = str(error["loc"][-1])
        return f"unknown key {key!r}; {near(key, Rule.model_fields)}"
    if error["type"] == "missing" and place == "what":
        return "what is missing: say what to do, for example what: {status: 503}"
    found = error.get("input")
    shown = "" if isinstance(found, dict) or error["type"] == "value_error" else f", found {found!r}"
    return f"{place}: {message[:1].lower()}{message[1:]}{shown}" if place else message
