"""Why calls failed or took longer, in the order of what it cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sfusion.harness.studies.learn.distributions import rounded
from sfusion.harness.studies.learn.failures import FailureFit
from sfusion.harness.studies.learn.permits import PermitWaits
from sfusion.harness.studies.learn.programs import ProgramFit
from sfusion.harness.studies.learn.sandbox_fit import SandboxFit
from sfusion.harness.studies.learn.waves import Wave
from sfusion_tools.wording import counted

_SMALLEST = 0.005
"""The share of what it cost up to which a cause is not worth a line beside others."""

_MATTERS = 0.05
"""The weight from which on a cause may be the reason for waits for permits."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why calls failed or took longer."""

    kind: str
    """quota, queue, contention, degradation, slow_spell, slowdown, crash, wedge, slow_sandbox, malformed_calls,
    rate_limit, unknown_limit, an ending, or the wave of an outcome."""
    says: str
    evidence: str
    weight: float
    """The share of requests, calls or time that it cost."""
    sandbox: str = ""


def find_causes(
    sandboxes: Sequence[SandboxFit],
    programs: Sequence[ProgramFit],
    waves: Sequence[Wave],
    permits: PermitWaits | None,
    requests: int,
    span: float,
) -> tuple[Cause, ...]:
    causes: list[Cause] = []
    time = sum(seconds for sandbox in sandboxes for _, seconds in sandbox.base) or 1.0
    for sandbox in sandboxes:
        label = sandbox.label if len(sandboxes) > 1 else ""
        part = sandbox.requests / max(requests, 1)
        if (quota := sandbox.quota) is not None:
            causes.append(Cause(quota.kind, quota.says, quota.evidence, len(quota.refused) / requests, label))
        slow = sandbox.slowness
        if slow.kind != "none" and not (quota is not None and slow.kind == quota.kind):
            causes.append(Cause(slow.kind, slow.says, slow.evidence, slow.weight * part, label))
        for one in sandbox.failures:
            kind = one.kind if one.kind in ("crash", "wedge") else _cause_kind(one)
            lasted = (
                (min(one.between[1], span) - one.between[0]) / max(span, 1e-9)
                if one.between and kind in ("crash", "wedge")
                else 0.0
            )
            causes.append(Cause(kind, one.says, one.evidence, one.failed / requests + lasted, label))
        if (slower := sandbox.slower) is not None:
            others = statistics.median(s for one in sandboxes if one.slower is None for _, s in one.base)
            own = statistics.median(s for _, s in sandbox.base)
            causes.append(
                Cause(
                    "slow_sandbox",
                    f"{label} takes {rounded(slower.median):g} s longer than the others",
                    f"median answer {own:.3g} s ({len(sandbox.base):,} answers), {others:.3g} s elsewhere",
                    slower.median * len(sandbox.base) / time,
                    label,
                )
            )
    malformed = [one for one in programs if one.outcome == "bad_arguments"]
    if malformed:
        count, of = sum(one.calls for one in malformed), malformed[0].of
        problems = "; ".join(f"{one.keys['arguments']['malformed']} ({one.calls:,})" for one in malformed)
        says = f"malformed tool calls: {count / of:.1%} had arguments that cannot be used"
        causes.append(Cause("malformed_calls", says, f"{count:,} of {counted(of, 'call')}: {problems}", count / of))
    causes += [Cause(f"{one.outcome}_wave", one.says, one.evidence, one.weight) for one in waves]
    serious = [one for one in causes if one.weight >= _SMALLEST] or causes
    found = sorted(serious, key=lambda one: -one.weight)
    if permits is not None and permits.is_serious:
        # Requests that the server keeps for longer let others wait, so that is named first.
        place = sum(one.weight > min(permits.weight, _MATTERS) for one in found)
        found.insert(place, Cause("rate_limit", permits.says, permits.evidence, permits.weight))
    return tuple(found)


def _cause_kind(one: FailureFit) -> str:
    ending, status = one.family
    name = "unknown_limit" if status == 429 else f"status_{status}" if ending == "status" else ending
    return f"{name}_burst" if one.kind == "burst" else name
