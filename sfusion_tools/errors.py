"""The errors of sfusion_tools.

SfusionError
├── ConfigError (ValueError)          a tool config, a limiter setting or a URL is wrong
├── YamlError (ValueError)            a YAML text cannot be read; every problem names its line
├── InputError (ValueError)           a file or text is too large, too deep, damaged or unreadable
├── MissingExtra (ImportError)        an optional dependency is not installed; exit code 3
├── ScoringError (ValueError)           the test cases of a reward are invalid
├── LimiterError                      the limiter could not do what was asked
│   ├── PermitTimeout (TimeoutError)  no permit within the given time
│   ├── LimiterUnreachable            no Ray, or the limiter's actor is gone; exit code 3
│   │   └── SessionChanged            this process has connected to Ray again since then
│   ├── ProtocolMismatch              the cluster's limiter is of another version of sfusion
│   └── LimiterClosed                 the client was closed, perhaps while a caller waited
├── FormatError (ValueError)          a tool-call format cannot be used
│   ├── UnknownFormatError            there is no format with this name
│   └── RenderError                   the format cannot express this call or content
├── RolloutError                      a rollout cannot go on
│   ├── IllegalTransition             the request's state does not allow this step
│   ├── EngineAnswerError             the engine's answer is not a generation
│   ├── StepTimeout (TimeoutError)    a step of a tool or an interaction did not end in time
│   ├── TemplateError                 the chat template raised, or cannot be continued turn by turn
│   └── BadLimits (ValueError)        a limit is out of range, or two contradict each other
└── TokenizerError                    a tokenizer cannot be used
    ├── TokenizerNotFound             there is no usable tokenizer at the path
    └── UnknownToken (ValueError)     an id to decode is outside the vocabulary

GuardTripped                          the guard stops the job; a BaseException and no SfusionError

What a sandbox answers is never an exception: see ``sfusion_tools.outcome``. Neither is a malformed
tool call: see ``sfusion_tools.formats.model.Problem``. Commands exit with an error's ``exit_code``,
2 unless noted above.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar


class SfusionError(Exception):
    """Base of every error raised by sfusion_tools."""

    exit_code: ClassVar[int] = 2


class ConfigError(SfusionError, ValueError):
    """Raised for a wrong configuration.

    The message names the place, what was found and what was expected.
    """


class YamlError(SfusionError, ValueError):
    """Raised for a text that is not usable YAML; every problem names its file and line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InputError(SfusionError, ValueError):
    """Raised for a file or text that cannot be read within its bounds.

    The message begins with its place.
    """


class MissingExtra(SfusionError, ImportError):
    """Raised when a feature needs a package that only an extra of sfusion installs."""

    exit_code = 3

    def __init__(self, what: str, extra: str, cause: ImportError | None = None) -> None:
        reason = f" ({cause})" if cause is not None else ""
        super().__init__(
            f"{what} needs an extra that is not installed{reason}: pip install 'sfusion[{extra}]'"
        )


class ScoringError(SfusionError, ValueError):
    """Raised when the test cases of a reward are invalid, whatever the program does."""


class LimiterError(SfusionError):
    """Base of the limiter's errors."""


class PermitTimeout(LimiterError, TimeoutError):
    """Raised when no permit was granted within the given time."""


class LimiterUnreachable(LimiterError):
    """Raised by a transport when the limiter behind it does not answer.

    Clients then attach again.
    """

    exit_code = 3


class SessionChanged(LimiterUnreachable):
    """Raised by a transport in place of the first message to the limiter of a new Ray session."""


class ProtocolMismatch(LimiterError):
    """Raised when a limiter is used by another version of sfusion.

    The limiter of a cluster outlives upgrades, and processes of one machine may run different
    versions.
    """


class LimiterClosed(LimiterError):
    """Raised in callers waiting for a permit when their client is closed."""


class FormatError(SfusionError, ValueError):
    """Base of the errors about tool-call formats."""


class UnknownFormatError(FormatError):
    """Raised by ``get_format`` for an unknown name."""


class RenderError(FormatError):
    """Raised by ``render`` when its text could not be parsed back into the same calls."""


class RolloutError(SfusionError):
    """Base of the errors about rollouts."""


class IllegalTransition(RolloutError):
    """Raised for a step that the request's state does not allow."""


class EngineAnswerError(RolloutError):
    """Raised when the engine's answer lacks a field that every generation has."""


class StepTimeout(RolloutError, TimeoutError):
    """Raised when a step of a tool or an interaction did not end within its limit."""


class TemplateError(RolloutError):
    """Raised when a chat template raises, or cannot be continued turn by turn.

    Then the tokens of new messages cannot be separated from those before.
    """


class BadLimits(RolloutError, ValueError):
    """Raised when a limit is out of its range, or two limits contradict each other."""


class TokenizerError(SfusionError):
    """Base of the errors about tokenizers."""


class TokenizerNotFound(TokenizerError):
    """Raised when there is no tokenizer at the path that can be loaded."""


class UnknownToken(TokenizerError, ValueError):
    """Raised when an id outside the vocabulary is decoded."""


class GuardTripped(BaseException):
    """Raised by a tool with ``guard: {then: fail}`` when too many calls fail.

    They failed for reasons that are not the program's. It is not an Exception on purpose: verl's
    agent loop shows every Exception of a tool to the model and goes on. Tasks of asyncio carry it
    like any other error, and Ray turns it into a RayTaskError, which fails the job. SystemExit and
    KeyboardInterrupt would not do: they end the event loop of a Ray actor, and its caller waits for
    ever.
    """


def import_extra(module: str, *, extra: str, needed_by: str) -> Any:
    """Import a module that only ``sfusion[extra]`` installs.

    MissingExtra tells the reader how to get it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingExtra(needed_by, extra, missing) from missing


def near(word: str, known: Iterable[str]) -> str:
    """Return a clause that suggests the nearest known word, or lists all if none is close."""
    words = sorted(known)
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(words)}" if words else "none is known"


def refusal(problem: Any, fields: Mapping[str, Any] | None = None) -> str:
    """Return what is wrong with a value, given a problem that pydantic found.

    ``fields`` are those that there are.
    """
    loc = problem["loc"]
    kind = problem["type"]
    found = problem["input"]
    key = ".".join(map(str, loc))
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        hint = f"; {near(str(loc[-1]), fields)}" if fields else ""
        return f"unknown key {key!r}{hint}"
    if kind == "missing":
        meant = getattr((fields or {}).get(key), "description", None)
        given = ", ".join(map(repr, found)) if isinstance(found, dict) else ""
        return f"{key} is missing: {meant or f'found {given or repr(found)}'}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        return f"{key}: {message}" if key else message
    shown = "" if isinstance(found, dict) else f", found {found!r}"
    return f"{key}: {message[:1].lower()}{message[1:]}{shown}"
