"""Makes tools from a config file in verl's format.

Errors name file, line, tool and key, and the nearest name.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sfusion_tools.errors import ConfigError, MissingExtra, YamlError, near, refusal
from sfusion_tools.marked_yaml import Marked, read_marked
from sfusion_tools.schemas import OpenAIFunctionToolSchema

_ENTRY_KEYS = ("class_name", "config", "tool_schema")
_KINDS = ("native", "mcp")
_OWN_CLASSES = (
    "sfusion_tools.gsm8k_tool.Gsm8kTool",
    "sfusion_tools.mcp_tool.McpTool",
    "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
)


def initialize_tools_from_config(tools_config_file: str | Path) -> list[Any]:
    """Make the tools of a YAML file.

    ``tools: [{class_name, config: {type: native, …}, tool_schema: {…}}]``
    """
    path = Path(tools_config_file)
    tools: list[Any] = []
    places: dict[str, str] = {}
    for number, (place, entry) in enumerate(_entries(path)):
        for tool in _make_tools(place, entry):
            if tool.name in places:
                raise ConfigError(
                    f"{place} ({entry['class_name']}) and {places[tool.name]} both define a tool "
                    f"named {tool.name!r}; the model could not tell them apart, so rename one in "
                    "its tool_schema"
                )
            places[tool.name] = f"tools[{number}] ({entry['class_name']})"
            tools.append(tool)
    return tools


def _make_tools(place: str, entry: dict[str, Any]) -> list[Any]:
    """Make the tool of an entry, or with ``type: mcp`` those of a server."""
    config = entry.get("config")
    if not isinstance(config, dict) or config.get("type") != "mcp":
        return [make_tool(place, entry)]
    if entry.get("tool_schema") is not None:
        return [make_tool(place, entry)]
    from sfusion_tools.mcp_tool import tools_of

    try:
        return list(tools_of(config))
    except ConfigError as error:
        raise ConfigError(f"{place} ({entry['class_name']}): {error}") from error


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a tool config file.

    They are validated as far as possible without making the tools.
    """
    return [entry for _, entry in _entries(path)]


def _entries(path: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        marked = read_marked(path)
    except YamlError as error:
        raise ConfigError("; ".join(error.problems)) from None
    document = marked.data
    tools = document.get("tools") if isinstance(document, dict) else None
    if not isinstance(tools, list):
        raise ConfigError(
            f"{marked.place(('tools',))}: expected a mapping with a list `tools:`, found "
            f"{_found(document)}"
        )
    return [_entry(marked, number, entry) for number, entry in enumerate(tools)]


def _found(document: Any) -> str:
    """Describe a document that has no list of tools."""
    if document is None:
        return "nothing"
    if not isinstance(document, dict) or not document:
        return f"a {type(document).__name__}"
    if "tools" in document:
        return f"`tools: {document['tools']!r}`"
    keys = [str(key) for key in document]
    return f"{', '.join(keys)}; {near(keys[0], ['tools'])}"


def _entry(marked: Marked, number: int, entry: Any) -> tuple[str, dict[str, Any]]:
    place = f"{marked.place(('tools', number))}: tools[{number}]"
    if not isinstance(entry, dict):
        raise ConfigError(
            f"{place}: expected a mapping with class_name, config and tool_schema, found {entry!r}"
        )
    for key in entry:
        if key not in _ENTRY_KEYS:
            line = marked.place(("tools", number, str(key)))
            raise ConfigError(
                f"{line}: tools[{number}]: unknown key {key!r}; {near(str(key), _ENTRY_KEYS)}"
            )
    if not isinstance(entry.get("class_name"), str):
        raise ConfigError(
            f"{place}: class_name is missing or not a string; give a dotted path to a tool class"
        )
    return place, entry


def make_tool(place: str, entry: dict[str, Any]) -> Any:
    """Make the tool of one entry; ``place`` is its location, for errors."""
    class_name = entry["class_name"]
    place = f"{place} ({class_name})"
    config = entry.get("config") or {}
    if not isinstance(config, dict):
        raise ConfigError(f"{place}: config must be a mapping, found {config!r}")
    kind = config.get("type", "native")
    if kind not in _KINDS:
        raise ConfigError(
            f"{place}: config.type {kind!r} is not supported; {near(str(kind), _KINDS)}"
        )
    tool_class = load_class(place, class_name)
    schema = _schema(place, entry["tool_schema"]) if entry.get("tool_schema") is not None else None
    try:
        tool = tool_class(config=config, tool_schema=schema)
    except MissingExtra:
        raise
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    except Exception as error:
        # A third-party tool may raise anything; the reader needs the place all the same.
        raise ConfigError(
            f"{place}: the tool refused its config: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(getattr(tool, "name", None), str):
        raise ConfigError(
            f"{place}: the tool has no name; call BaseTool.__init__ in its __init__, or set "
            "self.name"
        )
    return tool


def load_class(place: str, class_name: str) -> Any:
    """Import a tool class by its dotted path; raise ConfigError if that fails."""
    module_name, dot, name = class_name.rpartition(".")
    if not dot:
        raise ConfigError(f"{place}: class_name needs a module, as in {_OWN_CLASSES[-1]!r}")
    module = _load_module(place, class_name, module_name)
    found = getattr(module, name, None)
    if found is None:
        members = vars(module).items()
        classes = [key for key, value in members if _may_be_tool(value)]
        raise ConfigError(f"{place}: {module_name} has no class {name!r}; {near(name, classes)}")
    if not isinstance(found, type):
        raise ConfigError(f"{place}: {class_name} is not a class but a {type(found).__name__}")
    for method in ("execute", "create", "release"):
        if not hasattr(found, method):
            raise ConfigError(
                f"{place}: {class_name} is not a tool: it has no {method}(); derive it from "
                "BaseTool"
            )
    return found


def _may_be_tool(value: object) -> bool:
    return isinstance(value, type) and hasattr(value, "execute")


def _load_module(place: str, class_name: str, module_name: str) -> Any:
    """Import a module by its dotted path; raise ConfigError if that fails."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{place}: {module_name} could not be imported: {error}") from error
        raise ConfigError(
            f"{place}: there is no module {error.name!r}; {_near_module(class_name, module_name)}"
        ) from None
    except Exception as error:  # a third-party module may raise anything
        raise ConfigError(
            f"{place}: {module_name} could not be imported: {type(error).__name__}: {error}"
        ) from error


def _near_module(class_name: str, module_name: str) -> str:
    if class_name.startswith("verl.tools."):
        ours = class_name.replace("verl.tools.", "sfusion_tools.", 1)
        if ours in _OWN_CLASSES:
            return f"did you mean {ours!r}?"
    parent, _, _ = module_name.rpartition(".")
    siblings = list(_OWN_CLASSES)
    if parent in sys.modules:  # importing the module got as far as its package
        for path in getattr(sys.modules[parent], "__path__", ()):
            siblings += [f"{parent}.{module.name}" for module in pkgutil.iter_modules([path])]
    hint = near(module_name, siblings)
    return hint if hint.startswith("did you mean") else near(class_name, _OWN_CLASSES)


def _schema(place: str, schema: Any) -> OpenAIFunctionToolSchema:
    try:
        return OpenAIFunctionToolSchema.model_validate(schema)
    except ValidationError as error:
        wrong = [
            refusal({**problem, "loc": ("tool_schema", *problem["loc"])})
            for problem in error.errors()
        ]
        raise ConfigError(f"{place}: {'; '.join(wrong)}") from None
