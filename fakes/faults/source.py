"""Reading fault rules from YAML or data, with errors that say where, what was found and what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sfusion.fakes.errors import FaultError
from sfusion.fakes.faults.rule import Rule, near


def read_rules(data: object, *, where: str = "faults", lines: Sequence[int] = ()) -> list[Rule]:
    """Read rules from data: a list of mappings, or a mapping with the single key ``faults``."""
    if isinstance(data, dict):
        extra = sorted(str(key) for key in data if key != "faults")
        if "faults" not in data or extra:
            odd = extra[0] if extra else "nothing"
            raise FaultError(f"{where}: expected a list of rules or a mapping 'faults: [...]', found {odd!r}")
        data = data["faults"]
    if data is None:
        return []
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise FaultError(f"{where}: expected a list of rules, found {data!r}")
    rules = []
    for index, item in enumerate(data):
        place = f"{where}:{lines[index]}" if index < len(lines) else where
        rules.append(item if isinstance(item, Rule) else read_rule(item, where=f"{place}: rule {index + 1}"))
    return rules


def read_rule(item: object, *, where: str = "rule") -> Rule:
    """Read one rule; raise FaultError with every mistake in it."""
    if not isinstance(item, dict):
        raise FaultError(f"{where}: expected a mapping such as {{first: 3, what: {{status: 503}}}}, found {item!r}")
    name = item.get("name")
    label = f"{where} ({name})" if name else where
    try:
        return Rule.model_validate(item)
    except ValidationError as error:
        raise FaultError("; ".join(f"{label}: {_sentence(one)}" for one in error.errors())) from None


def load_rules(path: str | Path) -> list[Rule]:
    """Read the rules of a YAML file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FaultError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FaultError(f"{path}: is not UTF-8 text") from error
    return parse_rules(text, where=str(path))


def parse_rules(text: str, *, where: str = "faults") -> list[Rule]:
    """Read the rules of a YAML text."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise FaultError(f"{where}{line}: not YAML: {problem}") from error
    return read_rules(data, where=where, lines=_rule_lines(node))


def _rule_lines(node: Any) -> list[int]:
    """The line of each rule in the file."""
    if isinstance(node, yaml.MappingNode):
        inner = [value for key, value in node.value if getattr(key, "value", None) == "faults"]
        node = inner[0] if inner else None
    if not isinstance(node, yaml.SequenceNode):
        return []
    return [child.start_mark.line + 1 for child in node.value]


def _sentence(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        key = str(error["loc"][-1])
        if len(error["loc"]) == 1:
            return f"unknown key {key!r}{near(key, list(Rule.model_fields)) or f'; known are {_known()}'}"
        return f"unknown key {place!r}"
    if error["type"] == "missing" and place == "what":
        return "what is missing: say what to do, for example what: {status: 503}"
    found = error.get("input")
    shown = "" if isinstance(found, dict) or error["type"] == "value_error" else f", found {found!r}"
    return f"{place}: {message[:1].lower()}{message[1:]}{shown}" if place else message


def _known() -> str:
    return ", ".join(Rule.model_fields)
