"""OpenTelemetry spans of tool calls, with ``tracing: true`` and the extra ``otel``.

Names are those of the semantic conventions for HTTP and for generative AI where these have one; all
others begin with ``sfusion.``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from sfusion_tools.errors import import_extra
from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt
from sfusion_tools.sandbox.result import CallResult


def call_tracer() -> Callable[[CallResult, str, float, str | None], None]:
    """Return what makes the spans of a call that has ended.

    It takes the result, the tool, the seconds and the trajectory. The span of a call is a child of
    the span that is current where the call is made, such as that of a trajectory, and has a child
    for every wait for a permit and for every attempt.
    """
    trace = import_extra("opentelemetry.trace", extra="otel", needed_by="tracing: true")
    tracer = trace.get_tracer("sfusion")

    def record(result: CallResult, tool: str, seconds: float, trajectory: str | None) -> None:
        end = time.time_ns()
        start = end - _ns(seconds)
        facts = _about_call(result, tool, trajectory)
        call = tracer.start_span(f"execute_tool {tool}", start_time=start, attributes=facts)
        if result.outcome is not Outcome.OK:
            call.set_status(trace.StatusCode.ERROR, result.outcome.value)
        context = trace.set_span_in_context(call)

        def child(name: str, begin: int, seconds: float, attributes: dict[str, Any]) -> None:
            span = tracer.start_span(name, context, start_time=begin, attributes=attributes)
            span.end(begin + _ns(seconds))

        for attempt in result.attempts:
            begin = start + _ns(attempt.after)
            if attempt.waited:
                number = {"sfusion.attempt": attempt.number}
                child("sfusion.permit", begin - _ns(attempt.waited), attempt.waited, number)
            child("sfusion.attempt", begin, attempt.seconds or 0.0, _about_attempt(attempt))
        if result.waited and not result.attempts:
            child("sfusion.permit", start, result.waited, {"sfusion.attempt": 1})
        call.end(end)

    return record


def _about_call(result: CallResult, tool: str, trajectory: str | None) -> dict[str, Any]:
    facts = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": result.call_id,
        "sfusion.outcome": result.outcome.value,
        "sfusion.infrastructure": result.outcome.is_infrastructure,
        "sfusion.possible_executions": result.possible_executions,
    }
    if result.outcome is not Outcome.OK:
        facts["error.type"] = result.outcome.value
    if trajectory is not None:
        facts["sfusion.trajectory"] = trajectory
    return facts


def _about_attempt(attempt: Attempt) -> dict[str, Any]:
    facts: dict[str, Any] = {"sfusion.attempt": attempt.number, "sfusion.outcome": attempt.kind}
    address = urlsplit(attempt.endpoint)
    if address.hostname is not None:
        facts["server.address"] = address.hostname
        if address.port is not None:
            facts["server.port"] = address.port
    if attempt.status is not None:
        facts["http.request.method"] = "POST"
        facts["http.response.status_code"] = attempt.status
    return facts


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
