"""An examination: the checks in order, each with what the ones before it found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sfusion.harness.doctor.address import check_address, check_route
from sfusion.harness.doctor.context import CheckContext
from sfusion.harness.doctor.endpoint import check_connection, check_ping, check_run_code
from sfusion.harness.doctor.finding import Finding
from sfusion.harness.doctor.http import HttpClient
from sfusion.harness.doctor.identity import detect_fake, detect_version
from sfusion.harness.doctor.languages import check_languages, check_packages
from sfusion.harness.doctor.leaks import check_leaks
from sfusion.harness.doctor.memory import check_memory_limit
from sfusion.harness.doctor.output import check_long_output, check_non_utf8_output
from sfusion.harness.doctor.plan import Plan
from sfusion.harness.doctor.proxies import check_proxies
from sfusion.harness.doctor.proxy_env import secrets_of_proxies
from sfusion.harness.doctor.settings import SandboxSettings
from sfusion.harness.doctor.stability import check_stability, stopped_answering
from sfusion.harness.doctor.stdin_race import check_stdin_race
from sfusion.harness.doctor.throughput import check_throughput
from sfusion.harness.doctor.timeouts import check_default_timeout, check_run_timeout
from sfusion.harness.errors import NotExamined, Vanished
from sfusion_tools.sandbox.endpoints import hide as hide_secrets


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    """As the report shows it."""
    run: Callable[[CheckContext], Awaitable[list[Finding]]]
    is_load: bool = False
    """Left out by --quick."""


CHECKS: tuple[Check, ...] = (
    Check("address", check_address),
    Check("proxy variables", check_proxies),
    Check("connection", check_connection),
    Check("ping", check_ping),
    Check("run_code", check_run_code),
    Check("route", check_route),
    Check("fake detection", detect_fake),
    Check("memory limit", check_memory_limit),
    Check("languages", check_languages),
    Check("packages", check_packages),
    Check("long output", check_long_output),
    Check("non-UTF-8 output", check_non_utf8_output),
    Check("leaks", check_leaks),
    Check("run_timeout", check_run_timeout),
    Check("default_timeout", check_default_timeout),
    Check("stdin race", check_stdin_race, is_load=True),
    Check("throughput", check_throughput, is_load=True),
    Check("stability", check_stability),
    Check("server version", detect_version),
)


@dataclass(slots=True)
class Examination:
    """The results for one sandbox."""

    settings: SandboxSettings
    findings: list[Finding] = field(default_factory=list)
    examined: list[str] = field(default_factory=list)
    not_examined: list[tuple[str, str]] = field(default_factory=list)
    """Checks that were not made, with the reason."""
    measured: dict[str, Any] = field(default_factory=dict)
    reached: bool | None = None
    """Did the address accept a connection? None if that was not tried."""

    @property
    def breaks(self) -> bool:
        return any(finding.breaks for finding in self.findings)


class Observer(Protocol):
    """Follows the progress of an examination."""

    def check_started(self, check: Check, number: int) -> None: ...

    def announce(self, text: str) -> None:
        """The examination is about to do something that the user should know of first, such as load."""

    def check_ended(self, check: Check, number: int, found: Sequence[Finding], why_not: str) -> None:
        """A check ended; ``why_not`` is the reason if it could not be made."""

    def stopped(self, left: Sequence[Check], why: str) -> None:
        """The remaining checks are skipped."""


class NullObserver:
    def _ignore(self, *_: Any, **__: Any) -> None: ...

    check_started = announce = check_ended = stopped = _ignore


async def examine(
    settings: SandboxSettings,
    plan: Plan | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    observer: Observer | None = None,
    checks: Sequence[Check] = CHECKS,
) -> Examination:
    """Examine one sandbox. ``environ`` and ``root`` stand for this machine's environment and file system."""
    plan, observer = plan or Plan(), observer or NullObserver()
    result = Examination(settings)
    hide = partial(hide_secrets, secrets=[*settings.secrets(), *secrets_of_proxies(environ or {})])
    async with HttpClient(headers=settings.headers, connect=plan.connect) as http:
        context = CheckContext(settings, plan, http, environ or {}, root, observer.announce)
        try:
            for number, check in enumerate(checks, 1):
                observer.check_started(check, number)
                found, why_not = await _run(check, context)
                found = [_hidden(finding, hide) for finding in found]
                why_not = hide(why_not)
                if why_not:
                    result.not_examined.append((check.name, why_not))
                else:
                    result.examined.append(check.name)
                result.findings += found
                observer.check_ended(check, number, found, why_not)
                if context.stopped:
                    left, why = checks[number:], hide(context.stopped)
                    result.not_examined += [(one.name, why) for one in left]
                    observer.stopped(left, why)
                    break
        finally:
            await context.aclose()
    result.measured = _clean(context.measured, hide)
    result.reached = context.reached if "connection" in result.examined else None
    return result


async def _run(check: Check, context: CheckContext) -> tuple[list[Finding], str]:
    """Return the findings, and the reason if the check could not be made."""
    if check.is_load and context.plan.quick:
        return [], "left out by --quick"
    try:
        try:
            async with asyncio.timeout(context.plan.per_check):
                return await check.run(context), ""
        except TimeoutError:
            why = f"abandoned after {context.plan.per_check:g} s"
            if context.reached:
                await context.must_answer(why)
            return [], why
    except Vanished as error:
        context.stopped = "it stopped answering"
        return [stopped_answering(check.name, str(error))], ""
    except NotExamined as error:
        return [], str(error)


def _hidden(finding: Finding, hide: Callable[[str], str]) -> Finding:
    return replace(finding, seen=hide(finding.seen), training=hide(finding.training), change=hide(finding.change))


def _clean(value: Any, hide: Callable[[str], str]) -> Any:
    match value:
        case str():
            return hide(value)
        case dict():
            return {key: _clean(one, hide) for key, one in value.items()}
        case list():
            return [_clean(one, hide) for one in value]
        case _:
            return value
