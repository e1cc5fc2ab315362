"""One test for many recorded cases, of which each takes less time than pytest needs for a test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_MOST_SHOWN = 10


def every(
    cases: Iterable[Any], name: Callable[[Any], str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a test of one case a test of all; every case is tried, and those that fail are reported
    by name.

    The case is the first argument; the others are fixtures, which all cases share.
    """
    cases = list(cases)

    def made(test: Callable[..., Any]) -> Callable[..., Any]:
        def failed(case: Any, error: BaseException) -> str:
            return f"{name(case)}: {type(error).__name__}: {error}"

        def report(wrong: list[str]) -> None:
            assert cases, "there are no cases"
            shown = "\n".join(wrong[:_MOST_SHOWN])
            assert not wrong, f"{len(wrong)} of {len(cases)} cases failed, among them\n{shown}"

        def whole(**fixtures: Any) -> None:
            wrong = []
            for case in cases:
                try:
                    test(case, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(failed(case, error))
            report(wrong)

        async def whole_async(**fixtures: Any) -> None:
            wrong = []
            for case in cases:
                try:
                    await test(case, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(failed(case, error))
            report(wrong)

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
