"""An examination: the checks in order, each with what the ones before it found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sfusion_tools.sandbox.endpoints import hide as hide_secrets

from ...errors import NotExamined, Vanished
from ..probes.scrubbing import with_texts
from . import address, endpoint, server, throughput
from .context import CheckContext, Finding, breaks, hurts, secrets_of_proxies
from .http import open_http
from .settings import Plan, SandboxSettings


async def check_stability(context: CheckContext) -> Finding | None:
    """Report programs that had to be sent again."""
    lost = context.failures.total()
    if not lost:
        return None
    reasons = ", ".join(f"{count} x {what}" for what, count in context.failures.most_common())
    return hurts(
        "unsteady",
        seen=(
            f"{lost} of {context.programs} programs, sent a few at a time, got no answer "
            f"from the sandbox: {reasons}"
        ),
        training="sfusion's tool sends such calls again, and their programs may run twice; "
        "verl's tool repeats "
        "only after 504 and loses the others",
        change=(
            "look for what cuts requests off: restarts, a gateway, a worker that dies; "
            "see the server's log"
        ),
    )


def stopped_answering(check: str, how: str) -> Finding:
    return breaks(
        "stops-answering",
        seen=f"it ran programs, then stopped answering during the check `{check}`: {how}",
        training="it works for a while and then fails every call, without reporting an error",
        change=(
            "check whether it was killed (memory) or is stuck, restart it, and run "
            "fewer programs at a time"
        ),
    )


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    """As the report shows it."""
    run: Callable[[CheckContext], Awaitable[Finding | Sequence[Finding | None] | None]]
    is_load: bool = False
    """Left out by --quick."""


CHECKS: tuple[Check, ...] = (
    Check("address", address.check_address),
    Check("proxy variables", address.check_proxies),
    Check("connection", endpoint.check_connection),
    Check("ping", endpoint.check_ping),
    Check("run_code", endpoint.check_run_code),
    Check("route", address.check_route),
    Check("memory limit", server.check_memory_limit),
    Check("languages", server.check_languages),
    Check("packages", server.check_packages),
    Check("long output", server.check_long_output),
    Check("run_timeout", server.check_run_timeout),
    Check("stdin race", server.check_stdin_race, is_load=True),
    Check("throughput", throughput.check_throughput, is_load=True),
    Check("stability", check_stability),
    Check("server version", server.detect_version),
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


class Observer:
    """Follows the progress of an examination; this one ignores it."""

    def check_started(self, check: Check, number: int) -> None:
        """A check begins."""

    def announce(self, text: str) -> None:
        """The examination is about to do something that the user should know of first, such as
        load."""

    def check_ended(
        self, check: Check, number: int, found: Sequence[Finding], why_not: str
    ) -> None:
        """A check ended; ``why_not`` is the reason if it could not be made."""

    def stopped(self, left: Sequence[Check], why: str) -> None:
        """The remaining checks are skipped."""


async def examine(
    settings: SandboxSettings,
    plan: Plan,
    *,
    environ: Mapping[str, str],
    root: Path = Path("/"),
    observer: Observer | None = None,
    checks: Sequence[Check] = CHECKS,
) -> Examination:
    """Examine one sandbox. ``environ`` and ``root`` stand for this machine's environment and file
    system."""
    observer = observer or Observer()
    result = Examination(settings)
    hide = partial(hide_secrets, secrets=[*settings.secrets(), *secrets_of_proxies(environ)])
    async with open_http(settings.config.headers, plan.connect) as http:
        context = CheckContext(
            settings=settings,
            plan=plan,
            http=http,
            environ=environ,
            root=root,
            announce=observer.announce,
        )
        try:
            for number, check in enumerate(checks, 1):
                observer.check_started(check, number)
                found, why_not = await _run(check, context)
                found = [
                    replace(
                        finding,
                        seen=hide(finding.seen),
                        training=hide(finding.training),
                        change=hide(finding.change),
                    )
                    for finding in found
                ]
                why_not = hide(why_not)
                if why_not:
                    result.not_examined.append((check.name, why_not))
                else:
                    result.examined.append(check.name)
                result.findings += found
                observer.check_ended(check, number, found, why_not)
                if context.stopped:
                    left = checks[number:]
                    why = hide(context.stopped)
                    result.not_examined += [(check.name, why) for check in left]
                    observer.stopped(left, why)
                    break
        finally:
            await context.aclose()
    result.measured = with_texts(context.measured, hide)
    result.reached = context.reached if "connection" in result.examined else None
    return result


async def _run(check: Check, context: CheckContext) -> tuple[list[Finding], str]:
    """Return the findings, and the reason if the check could not be made."""
    if check.is_load and context.plan.quick:
        return [], "left out by --quick"
    try:
        try:
            async with asyncio.timeout(context.plan.per_check):
                found = await check.run(context)
                several = [found] if isinstance(found, Finding) or found is None else found
                return [check for check in several if check is not None], ""
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
