"""OpenTelemetry spans of calls, made from the result when a call has ended: ``tracing: true``, with the extra ``otel``.

The span of a call is a child of the span that is current where the call is made, such as that of a trajectory, and has
a child for every wait for a permit and for every attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sfusion_tools.errors import import_extra
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox.result import CallResult

Traced = Callable[[CallResult, str, float, str | None], None]


def call_tracer() -> Traced:
    """Return what makes the spans of a call, given its result, the tool, the seconds it took and the trajectory."""
    trace = import_extra("opentelemetry.trace", extra="otel", needed_by="tracing: true")
    tracer = trace.get_tracer("sfusion")

    def record(result: CallResult, tool: str, seconds: float, trajectory: str | None) -> None:
        end = time.time_ns()
        start = end - _ns(seconds)
        facts = {
            "sfusion.call_id": result.call_id,
            "sfusion.outcome": result.outcome.value,
            "sfusion.infrastructure": result.outcome.is_infrastructure,
            "sfusion.possible_executions": result.possible_executions,
            **({} if trajectory is None else {"sfusion.trajectory": trajectory}),
        }
        call = tracer.start_span(f"execute_tool {tool}", start_time=start, attributes=facts)
        if result.outcome is not Outcome.OK:
            call.set_status(trace.StatusCode.ERROR, result.outcome.value)
        context = trace.set_span_in_context(call)

        def child(name: str, begin: int, seconds: float, attributes: dict[str, Any]) -> None:
            span = tracer.start_span(name, context, start_time=begin, attributes=attributes)
            span.end(begin + _ns(seconds))

        for attempt in result.attempts:
            begin = start + _ns(attempt.after)
            number = {"sfusion.attempt": attempt.number}
            if attempt.waited:
                child("sfusion.permit", begin - _ns(attempt.waited), attempt.waited, number)
            about = {**number, "server.address": attempt.endpoint, "sfusion.outcome": attempt.kind}
            if attempt.status is not None:
                about["http.response.status_code"] = attempt.status
            child("sfusion.attempt", begin, attempt.seconds or 0.0, about)
        if result.waited and not result.attempts:
            child("sfusion.permit", start, result.waited, {"sfusion.attempt": 1})
        call.end(end)

    return record


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
