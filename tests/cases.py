"""One test for many recorded cases, of which each takes less time than pytest needs for a test."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

ONLY = "SFUSION_CASE"
"""The variable that selects cases by a part of their names."""
_MOST_SHOWN = 10
"""Failed cases that are shown with their errors; of the others, only the names (chosen)."""


def every(
    cases: Iterable[Any], name: Callable[[Any], str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a test of one case a test of all; every case is tried, and those that fail are reported
    by name.

    The case is the first argument; the others are fixtures, which all cases share. With the
    variable ``SFUSION_CASE``, only cases are tried whose names contain its text.
    """
    cases = list(cases)

    def chosen() -> list[Any]:
        wanted = os.environ.get(ONLY, "")
        found = [case for case in cases if wanted in name(case)]
        if cases and not found:
            pytest.skip(f"no case has {wanted!r} in its name ({ONLY})")
        return found

    def made(test: Callable[..., Any]) -> Callable[..., Any]:
        def report(wrong: dict[str, BaseException], tried: int) -> None:
            assert cases, "there are no cases"
            assert not wrong, _report(wrong, tried)

        def whole(**fixtures: Any) -> None:
            wrong: dict[str, BaseException] = {}
            tried = chosen()
            for case in tried:
                try:
                    test(case, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[name(case)] = error
            report(wrong, len(tried))

        async def whole_async(**fixtures: Any) -> None:
            wrong: dict[str, BaseException] = {}
            tried = chosen()
            for case in tried:
                try:
                    await test(case, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[name(case)] = error
            report(wrong, len(tried))

        found: Any = whole_async if inspect.iscoroutinefunction(test) else whole
        found.__name__, found.__doc__, found.__module__ = (
            test.__name__,
            test.__doc__,
            test.__module__,
        )
        arguments = inspect.signature(test)
        found.__signature__ = arguments.replace(parameters=[*arguments.parameters.values()][1:])
        return found

    return made


def _report(wrong: dict[str, BaseException], tried: int) -> str:
    """Say which cases failed and how to try one of them alone."""
    names = list(wrong)
    lines = [f"{len(wrong)} of {tried} cases failed"]
    lines += [
        f"{name}: {type(wrong[name]).__name__}: {wrong[name]}" for name in names[:_MOST_SHOWN]
    ]
    if len(names) > _MOST_SHOWN:
        lines.append(f"and {', '.join(names[_MOST_SHOWN:])}")
    lines.append(f"to try one of them alone: {ONLY}={names[0]!r} pytest ...")
    return "\n".join(lines)
