"""Reads the arguments of a model's call.

They become a program, or a message that tells the model what is wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from sfusion_tools.errors import near
from sfusion_tools.sandbox.config import SandboxToolConfig
from sfusion_tools.sandbox.program import RUNNABLE, Program
from sfusion_tools.schemas import OpenAIFunctionParametersSchema

_EXAMPLE = 'call it with an object such as {"code": "print(1 + 1)"}'


class BadArguments(Exception):
    """Raised when the arguments cannot be used; the model reads the message."""

    def __init__(self, problem: str, message: str) -> None:
        super().__init__(message)
        self.problem = problem
        """What is wrong, in a few words that quote nothing of the arguments."""


def offered_languages(
    config: SandboxToolConfig, schema: OpenAIFunctionParametersSchema
) -> frozenset[str]:
    """Return the languages that a model may choose besides the default.

    They are those of the config, else of the schema.
    """
    if config.languages is not None:
        return frozenset(config.languages)
    parameter = schema.properties.get("language")
    if parameter is None:
        return frozenset()
    if parameter.enum is None:
        return RUNNABLE
    return frozenset(name for name in RUNNABLE if name in parameter.enum)


def read_arguments(
    parameters: Any,
    config: SandboxToolConfig,
    languages: Collection[str] = (),
    *,
    longest: float | None = None,
) -> tuple[Program, str]:
    """Return the program, and a remark for the model if it does not get exactly what it asked for.

    ``languages`` are those that the model may choose besides the default. A sandbox may lack the
    others, and a model that could choose them could make its failures look like the sandbox's.
    ``longest`` is the longest timeout, if it is not that of the config.
    """
    if not isinstance(parameters, dict):
        raise BadArguments(
            "arguments are not an object",
            f"the arguments must be a JSON object, found {_kind(parameters)}; {_EXAMPLE}",
        )
    code = _code(parameters)
    language = config.default_language
    timeout = config.default_timeout
    remark = ""
    asked = parameters.get("language")
    if asked is not None:
        language = _language(asked, language, languages)
    asked = parameters.get("timeout")
    if asked is not None:
        timeout, remark = _timeout(asked, config.longest_timeout if longest is None else longest)
    program = Program(
        code,
        language,
        timeout,
        compile_timeout=config.compile_timeout,
        memory_limit_mb=config.memory_limit_mb,
    )
    return program, remark


def _code(parameters: dict[str, Any]) -> str:
    if "code" not in parameters:
        given = "found no arguments"
        if parameters:
            given = f"found only {', '.join(map(repr, parameters))}"
        raise BadArguments("code is missing", f"`code` is missing, {given}; {_EXAMPLE}")
    code = parameters["code"]
    if not isinstance(code, str):
        raise BadArguments(
            "code is not a string", f"`code` must be a string, found {_kind(code)}; {_EXAMPLE}"
        )
    if not code.strip():
        raise BadArguments("code is empty", f"`code` is empty; {_EXAMPLE}")
    check_text("code", code)
    return code


def check_text(name: str, text: str) -> None:
    """Refuse what the server could not read: its failure would look like the sandbox's."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"`{name}` contains a lone surrogate at position {error.start}"
        raise BadArguments(f"{name} is not text", found) from None


def _language(asked: Any, default: str, others: Collection[str]) -> str:
    if isinstance(asked, str) and (asked == default or asked in others):
        return asked
    if not isinstance(asked, str) or asked not in RUNNABLE:
        raise BadArguments(
            "language is unknown",
            f"`language` {_show(asked)} is not known here; "
            f"{near(_show(asked), {default, *others})}",
        )
    if not others:
        raise BadArguments(
            "language is not offered",
            f"`language` {asked!r} is not offered here: leave it out and write {default}",
        )
    known = ", ".join(sorted({default, *others}))
    raise BadArguments(
        "language is not offered", f"`language` {asked!r} is not offered here; known: {known}"
    )


def _timeout(asked: Any, longest: float) -> tuple[float, str]:
    try:
        seconds = math.nan if isinstance(asked, bool) else float(asked)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not seconds > 0:
        raise BadArguments(
            "timeout is not a number of seconds",
            f"`timeout` must be a number of seconds above 0, at most {longest:g}; found "
            f"{_show(asked)}",
        )
    if seconds > longest:
        return (
            longest,
            f"\n[`timeout` {_show(asked)} was lowered to {longest:g} s, the most allowed here.]",
        )
    return seconds, ""


def _kind(value: Any) -> str:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(value), dict):
                return "an object wrapped into a string; give the object itself"
        return f"a string: {_show(value)}"
    names = {
        list: "a list",
        dict: "an object",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a very deep list
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else f"{text[:59]}…"
