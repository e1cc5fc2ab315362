"""Reads promises from scenario files and judges runs by them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from pydantic import ValidationError

from sfusion.harness.lab.journal import Journal
from sfusion.harness.lab.promises.base import PROMISES, Promise
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.lab.promises.vacuity import shows_nothing
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.errors import near

# Importing a module registers its promises.
for _module in iter_modules([str(Path(__file__).parent)]):
    import_module(f"{__package__}.{_module.name}")


def read_promise(value: Any) -> Promise:
    """Read a promise as scenarios write it: a name, or a mapping of one name to its parameters."""
    if isinstance(value, Promise):
        return value
    if isinstance(value, str):
        name, given = value, None
    elif isinstance(value, dict) and len(value) == 1:
        ((name, given),) = value.items()
    else:
        raise ValueError(
            f"a promise is a name, or one name with its parameters, as in {{outcomes: {{ok: all}}}}; found {value!r}"
        )
    if name not in PROMISES:
        raise ValueError(f"unknown promise {name!r}; {near(str(name), PROMISES)}")
    cls = PROMISES[name]
    if given is None:
        given = {}
    if not isinstance(given, dict):
        given = cls.from_scalar(given)
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        raise ValueError(f"{name}: " + "; ".join(_sentence(cls, one) for one in error.errors())) from None


def _sentence(cls: type[Promise], problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown parameter {key!r}; {near(key, cls.model_fields)}"
    if problem["type"] == "missing":
        return f"{key} is missing: {cls.model_fields[key].description}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return message
    return f"{key}: {message[:1].lower()}{message[1:]}, found {problem['input']!r}"


def judge(journal: Journal, promises: Iterable[Promise]) -> list[Verdict]:
    """Return the verdicts on a run, in the order of the promises; then those of promises that are always judged."""
    return judge_story(Story(journal), promises)


def judge_story(story: Story, promises: Iterable[Promise]) -> list[Verdict]:
    """Return the verdicts on a journal that has been read already."""
    named = [_judged(promise, story) for promise in promises]
    names = {verdict.promise for verdict in named}
    others = [_judged(cls(), story) for name, cls in PROMISES.items() if cls.always and name not in names]
    return [*named, *(verdict for verdict in others if verdict.state == "broken")]


def judge_timed(journal: Journal, promises: Iterable[Promise]) -> tuple[list[Verdict], dict[str, float]]:
    """Return the verdicts on these promises alone, and the seconds that each of them took."""
    story, verdicts, times = Story(journal), [], {}
    for promise in promises:
        began = time.perf_counter()
        verdicts.append(_judged(promise, story))
        times[promise.name] = time.perf_counter() - began
    return verdicts, times


def _judged(promise: Promise, story: Story) -> Verdict:
    verdict = promise.judge(story)
    if stuck := story.of_world("stuck"):
        return verdict if verdict.state == "broken" else promise.unknown(f"the run could not go on: {stuck[0]['text']}")
    if promise.of_permits and story.foreign:
        return promise.not_applicable("this tool does not use the limiter of sfusion")
    if verdict.state == "broken" and (promise.always or not story.of_world("unobserved")):
        return verdict
    if verdict.state in ("held", "broken") and (why := shows_nothing(story, promise)) is not None:
        return promise.unknown(why)
    return verdict
