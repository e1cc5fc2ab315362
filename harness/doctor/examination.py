"""An examination: the checks in order, each with what the ones before it found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sfusion.harness.doctor.address import read_address, read_route
from sfusion.harness.doctor.burst import race_stdin
from sfusion.harness.doctor.clock import keep_time, run_long
from sfusion.harness.doctor.detour import take_detour
from sfusion.harness.doctor.endpoint import greet, reach, say_hello
from sfusion.harness.doctor.finding import Finding
from sfusion.harness.doctor.http import Wire
from sfusion.harness.doctor.identity import recognise, unmask
from sfusion.harness.doctor.languages import find_packages, try_languages
from sfusion.harness.doctor.memory import limit_memory
from sfusion.harness.doctor.output import measure_output, print_bytes
from sfusion.harness.doctor.patient import Patient
from sfusion.harness.doctor.plan import Plan
from sfusion.harness.doctor.proxies import secrets_of_proxies
from sfusion.harness.doctor.steadiness import check_steadiness, stopped_answering
from sfusion.harness.doctor.subject import Subject
from sfusion.harness.doctor.sweep import sweep
from sfusion.harness.errors import NotExamined, Vanished


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, and what makes it."""

    name: str
    make: Callable[[Patient], Awaitable[list[Finding]]]
    is_load: bool = False


CHECKS: tuple[Check, ...] = (
    Check("address", read_address),
    Check("proxy variables", take_detour),
    Check("connection", reach),
    Check("ping", greet),
    Check("run_code", say_hello),
    Check("route", read_route),
    Check("is it a fake", unmask),
    Check("memory limit", limit_memory),
    Check("languages", try_languages),
    Check("packages", find_packages),
    Check("long output", measure_output),
    Check("odd output", print_bytes),
    Check("run_timeout", keep_time),
    Check("default_timeout", run_long),
    Check("stdin race", race_stdin, is_load=True),
    Check("throughput", sweep, is_load=True),
    Check("steadiness", check_steadiness),
    Check("server version", recognise),
)


@dataclass(slots=True)
class Examination:
    """What came of examining one sandbox."""

    subject: Subject
    findings: list[Finding] = field(default_factory=list)
    examined: list[str] = field(default_factory=list)
    not_examined: list[tuple[str, str]] = field(default_factory=list)
    """Checks that were not made, and why."""
    measured: dict[str, Any] = field(default_factory=dict)
    reached: bool | None = None
    """Did anything take our connection? None when that was not tried."""

    @property
    def breaks(self) -> bool:
        """Was something found that breaks training?"""
        return any(finding.breaks for finding in self.findings)


class Listener(Protocol):
    """Somebody who watches an examination."""

    def begins(self, check: Check, number: int) -> None:
        """A check begins."""

    def announces(self, text: str) -> None:
        """Something is about to happen that the person should know first."""

    def ends(self, check: Check, number: int, found: Sequence[Finding], why_not: str) -> None:
        """A check ended, or was not made for that reason."""

    def stops(self, left: Sequence[Check], why: str) -> None:
        """Nothing further can be examined."""


class Nobody:
    """Watches nothing."""

    def begins(self, check: Check, number: int) -> None:
        """Nothing."""

    def announces(self, text: str) -> None:
        """Nothing."""

    def ends(self, check: Check, number: int, found: Sequence[Finding], why_not: str) -> None:
        """Nothing."""

    def stops(self, left: Sequence[Check], why: str) -> None:
        """Nothing."""


async def examine(
    subject: Subject,
    plan: Plan | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    listener: Listener | None = None,
    checks: Sequence[Check] = CHECKS,
) -> Examination:
    """Examine one sandbox. ``environ`` and ``root`` are what this machine's variables and files are taken from."""
    plan, listener = plan or Plan(), listener or Nobody()
    result = Examination(subject)
    hide = _hider([*subject.secrets(), *secrets_of_proxies(environ or {})])
    async with Wire(headers=subject.headers, connect=plan.connect) as wire:
        patient = Patient(subject, plan, wire, environ or {}, root, listener.announces)
        try:
            for number, check in enumerate(checks, 1):
                listener.begins(check, number)
                found, why_not = await _made(check, patient)
                found = [_hidden(finding, hide) for finding in found]
                why_not = hide(why_not)
                if why_not:
                    result.not_examined.append((check.name, why_not))
                else:
                    result.examined.append(check.name)
                result.findings += found
                listener.ends(check, number, found, why_not)
                if patient.stopped:
                    left, why = checks[number:], hide(patient.stopped)
                    result.not_examined += [(one.name, why) for one in left]
                    listener.stops(left, why)
                    break
        finally:
            await patient.aclose()
    result.measured = _clean(patient.measured, hide)
    result.reached = patient.reached if "connection" in result.examined else None
    return result


async def _made(check: Check, patient: Patient) -> tuple[list[Finding], str]:
    """What a check found, and why it was not made."""
    if check.is_load and patient.plan.quick:
        return [], "left out by --quick"
    if check.make is sweep and patient.plan.sweep is False:
        return [], "left out by --no-sweep"
    try:
        try:
            async with asyncio.timeout(patient.plan.per_check):
                return await check.make(patient), ""
        except TimeoutError:
            why = f"given up after {patient.plan.per_check:g} s"
            if patient.reached:
                await patient.must_answer(why)
            return [], why
    except Vanished as error:
        patient.stopped = "it stopped answering"
        return [stopped_answering(check.name, str(error))], ""
    except NotExamined as error:
        return [], str(error)


def _hider(secrets: Sequence[str]) -> Callable[[str], str]:
    def hide(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    return hide


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
