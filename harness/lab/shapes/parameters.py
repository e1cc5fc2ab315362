"""What a function is called with: its parameters, known by their names."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import BadOption
from ..client import Settings, TrialAsk
from ..facts.sent import encoded_files, request_fields

_SEVERAL = ("urls", "endpoints", "base_urls", "sandbox_urls", "servers", "hosts")
NAMES: dict[str, tuple[str, ...]] = {
    "code": (
        "code",
        "program",
        "source",
        "source_code",
        "script",
        "snippet",
        "code_str",
        "code_string",
        "python_code",
    ),
    "solution": ("solution", "solution_str", "completion", "response", "answer", "generation"),
    "tests": ("tests", "test_cases", "testcases", "in_outs", "ground_truth"),
    "url": (
        *(
            "url",
            "endpoint",
            "base_url",
            "api_url",
            "sandbox_url",
            "sandbox_fusion_url",
            "sandbox_endpoint",
            "address",
        ),
        *("server", "server_url", "host", *_SEVERAL),
    ),
    "language": ("language", "lang"),
    "stdin": ("stdin", "std_in", "stdin_data", "input", "input_data"),
    "files": ("files",),
    "timeout": (
        "timeout",
        "run_timeout",
        "time_limit",
        "timeout_s",
        "timeout_seconds",
        "default_timeout",
    ),
    "compile_timeout": ("compile_timeout",),
    "memory": ("memory_limit_mb", "memory_limit", "memory_mb"),
    "headers": ("headers", "extra_headers"),
    "rate_limit": (
        "rate_limit",
        "max_concurrency",
        "max_concurrent",
        "concurrency",
        "max_in_flight",
    ),
    "deadline": ("deadline", "total_timeout"),
    "request": ("request", "req", "payload", "body"),
    "ignored": ("data_source", "concurrent_semaphore", "extra_info"),
}
"""The names by which each meaning is known; the case of letters does not matter."""
_ROLE = {name: role for role, names in NAMES.items() for name in names}
SOFT = ("timeout", "time_limit", "timeout_s", "timeout_seconds", "input", "memory_limit", "files")
"""Names that may mean something else (the timeout of a connection, files that are encoded already):
what they carry is judged only if it is sent as it was given."""
_EMPTY: dict[str, Any] = {"files": {}, "headers": {}, "stdin": ""}
_EMPTY |= {"memory": 1024, "compile_timeout": 10.0, "rate_limit": 10, "deadline": 60.0}
"""What required parameters get where there is nothing to pass."""
WIRE = {
    "language": "language",
    "stdin": "stdin",
    "files": "files",
    "timeout": "run_timeout",
    "compile_timeout": "compile_timeout",
    "memory": "memory_limit_MB",
}
"""The field of a request for each meaning that has one."""
ROUTE = "/run_code"
_FIELDS = frozenset({"code", "fetch_files", *WIRE.values()})
"""All fields of a request that a server knows."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function or of a constructor, by their meaning."""

    roles: Mapping[str, inspect.Parameter]

    @classmethod
    def of(cls, function: Callable[..., Any], where: str) -> Parameters:
        """Read a signature; raise BadOption for required parameters of unknown meaning, with
        ``where`` they belong."""
        roles: dict[str, inspect.Parameter] = {}
        strange: list[str] = []
        hidden = False
        for parameter in _parameters(function):
            role = _ROLE.get(parameter.name.lower().strip("_"))
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                hidden = not isinstance(function, type)
            elif parameter.name == "self":
                continue  # a method is not bound yet
            elif role is not None and role not in roles:
                roles[role] = parameter
            elif parameter.default is parameter.empty:
                strange.append(parameter.name)
        if hidden and not roles and not strange:
            raise BadOption(
                f"{where}: its parameters cannot be seen: it takes {_signature(function)}. "
                "Name them, or decorate it with functools.wraps, or judge a function of "
                "yours that calls it"
            )
        if strange:
            usual = [names[0] for role, names in NAMES.items() if role != "ignored"]
            known = ", ".join([*usual, _SEVERAL[0]])
            them = " and ".join(f"`{name}`" for name in strange)
            raise BadOption(
                f"{where}: it is not known what to pass for {them}. Parameters are known by name "
                f"({known}). Give the others defaults, or judge a function of yours that calls it"
            )
        return cls(roles)

    def bind(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments. Meanings without a value keep their default, or
        are None."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for role, parameter in self.roles.items():
            value = values.get(role)
            if value is None and parameter.default is not parameter.empty:
                continue
            value = _EMPTY.get(role) if value is None else value
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        return args, kwargs


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError, TypeError):  # annotations for type checkers only
        return inspect.signature(function)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return all parameters; of a constructor that passes on keywords also those of the class that
    gets them."""
    found = list(_signature(function).parameters.values())
    if not isinstance(function, type):
        return found
    makers = [vars(base)["__init__"] for base in function.__mro__ if "__init__" in vars(base)]
    for maker in makers[1:-1]:
        named = [parameter for parameter in found if parameter.kind is not parameter.VAR_KEYWORD]
        if len(named) == len(found):
            break
        names = {parameter.name for parameter in found}
        inherited = _signature(maker).parameters
        found = named + [inherited[name] for name in inherited if name not in names]
    return found


def takes_several(url: inspect.Parameter | None) -> bool:
    """Say whether a parameter gets a list of addresses."""
    return url is not None and url.name.lower().strip("_") in _SEVERAL


def settings_values(settings: Settings, parameters: Parameters, route: str) -> dict[str, Any]:
    """Return what parameters get from the settings; ``route`` is what is added to addresses."""
    several = takes_several(parameters.roles.get("url"))
    return {
        "url": [base + route for base in settings.urls] if several else settings.urls[0] + route,
        "timeout": settings.default_timeout,
        "compile_timeout": settings.compile_timeout,
        "memory": settings.memory_limit_mb,
        "headers": dict(settings.headers) or None,
        "rate_limit": settings.rate_limit,
        "deadline": settings.deadline,
    }


def call_values(
    ask: TrialAsk,
    settings: Settings,
    parameters: Parameters,
    route: str,
    made_with: Parameters,
    *,
    other_form: bool = False,
) -> dict[str, Any]:
    """Return what parameters get for a call, settings included but for those that its object was
    made with."""
    made = made_with.roles.items()
    known = {role for role, parameter in made if parameter.name.lower() not in SOFT}
    settled = settings_values(settings, parameters, route)
    values = {role: value for role, value in settled.items() if role not in known}
    values |= {"code": ask.code, "language": ask.language, "stdin": ask.stdin}
    solution = parameters.roles.get("solution")
    if solution is not None:
        # What a model wrote has its program in a code block.
        whole = solution.name in ("completion", "generation", "response", "solution_str")
        values["solution"] = f"```{ask.language}\n{ask.code}\n```" if whole else ask.code
    values["files"] = (dict(ask.files) if other_form else encoded_files(ask)) or None
    if ask.timeout is not None:
        values["timeout"] = ask.timeout
    if "tests" in parameters.roles:
        values["tests"] = _tests(ask, parameters.roles["tests"], other_form=other_form)
    if "request" in parameters.roles:
        values["request"] = _request(parameters.roles["request"], ask, settings)
    return values


def seen_in(sent: Mapping[str, Any], asked: Mapping[str, Any]) -> set[str]:
    """Return which meanings were sent as they were asked for."""
    return {
        meaning for meaning, name in WIRE.items() if name in asked and sent.get(name) == asked[name]
    }


def misnamed(sent: Mapping[str, Any], asked: Mapping[str, Any], role: str) -> bool:
    """Was it sent under a name that no server knows, which ignores it?"""
    expected = asked.get(WIRE[role])
    unknown = {
        name: value
        for name, value in sent.items()
        if name not in _FIELDS and not isinstance(value, bool)
    }
    return bool(expected) and expected in unknown.values()


def is_unencoded(sent: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Were files sent, but none of them as the wire has them?"""
    found = sent.get("files")
    expected = asked.get("files")
    if not isinstance(found, dict) or not found or not expected:
        return False
    return not any(content in found.values() for content in expected.values())


def _request(parameter: inspect.Parameter, ask: TrialAsk, settings: Settings) -> Any:
    """Make the request object of an SDK: its class is the annotation; a dict without one."""
    fields = request_fields(ask, settings)
    kind = parameter.annotation
    if not isinstance(kind, type) or issubclass(kind, dict):
        return fields
    return kind(**{name: value for name, value in fields.items() if name in _fields_of(kind)})


def _fields_of(kind: type) -> Collection[str]:
    """Return the names that a request class is made with: a pydantic model of any version, or any
    other class."""
    return (
        getattr(kind, "model_fields", None)
        or getattr(kind, "__fields__", None)
        or _signature(kind).parameters
    )


def request_takes(one: inspect.Parameter) -> set[str]:
    """Return which meanings a request object carries."""
    kind = one.annotation
    if not isinstance(kind, type) or issubclass(kind, dict):
        return set(WIRE)
    return {role for role, name in WIRE.items() if name in _fields_of(kind)}


def _tests(ask: TrialAsk, one: inspect.Parameter, *, other_form: bool) -> Any:
    """Return the tests as verl's rewards take them: inputs and outputs; as JSON where they are a
    ground truth."""
    tests = {
        "inputs": [given for given, _ in ask.tests],
        "outputs": [wanted for _, wanted in ask.tests],
    }
    if one.annotation in (list, "list") or str(one.annotation).startswith("list["):
        return [{"input": given, "output": wanted} for given, wanted in ask.tests]
    as_json = one.name == "ground_truth" or one.annotation in (str, "str")
    return json.dumps(tests) if as_json != other_form else tests
