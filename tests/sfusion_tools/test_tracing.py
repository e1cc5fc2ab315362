"""Spans of calls in OpenTelemetry, under the span that is current where a call is made."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools import CodeRunner
from tests.sfusion_tools.sandbox.tools import make, printing


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Keeps the spans of a provider that only this test uses."""
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return kept


async def test_a_call_has_a_span_with_its_attempts_under_that_of_the_trajectory(
    spans: InMemorySpanExporter,
) -> None:
    data = SimpleNamespace(extra_fields={}, request_id="trajectory 7")
    async with FakeSandbox(faults=[{"first_attempts": 1, "what": {"status": 503}}]) as sandbox:
        tool = make(sandbox, tracing=True)
        with trace.get_tracer("test").start_as_current_span("trajectory") as above:
            await tool.execute("i", printing("3"), agent_data=data)
    first, second, call, outer = (
        span for span in spans.get_finished_spans() if span.name != "sfusion.permit"
    )
    assert call.name == "execute_tool code_interpreter"
    assert call.parent == above.get_span_context() == outer.get_span_context()
    assert (call.attributes["sfusion.outcome"], call.attributes["sfusion.trajectory"]) == (
        "ok",
        "trajectory 7",
    )
    assert call.attributes["gen_ai.operation.name"] == "execute_tool"
    assert call.attributes["gen_ai.tool.name"] == "code_interpreter"
    assert call.attributes["gen_ai.tool.call.id"]
    assert "error.type" not in call.attributes
    for attempt, status in ((first, 503), (second, 200)):
        assert attempt.attributes["http.response.status_code"] == status
        assert attempt.attributes["server.address"] == "127.0.0.1"
        assert attempt.attributes["server.port"] == sandbox.port
    assert first.parent == second.parent == call.get_span_context()
    assert (
        call.start_time
        <= first.start_time
        <= first.end_time
        <= second.start_time
        <= second.end_time
        <= call.end_time
    )


async def test_waits_and_failures_are_seen(spans: InMemorySpanExporter) -> None:
    async with FakeSandbox() as sandbox:
        config = {
            "sandbox_fusion_url": sandbox.url,
            "limiter": "local",
            "limiter_name": uuid4().hex,
            "rate_limit": 1,
        }
        runner = CodeRunner(config, tracing=True, queue_timeout=0.01)
        async with runner.client.permit():
            assert (await runner.run("1")).lost
        await runner.run("")
    permit, throttled, refused = spans.get_finished_spans()
    assert (permit.name, permit.parent) == ("sfusion.permit", throttled.get_span_context())
    for span, outcome in ((throttled, "throttled"), (refused, "bad_arguments")):
        assert span.attributes["sfusion.outcome"] == outcome
        assert span.attributes["error.type"] == outcome
    assert throttled.status.status_code is trace.StatusCode.ERROR


async def test_without_tracing_there_are_no_spans(spans: InMemorySpanExporter) -> None:
    async with FakeSandbox() as sandbox:
        await make(sandbox).execute("i", printing("3"))
    assert spans.get_finished_spans() == ()
