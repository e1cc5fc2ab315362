"""Every benchmark, with its goals."""

from __future__ import annotations

from benchmarks.benchmark import Benchmark
from benchmarks.calls import DESIGN, FLOOR, VERL, Calls
from benchmarks.event_logging import WITHOUT, logged_calls
from benchmarks.fake_servers import (
    BARE,
    PASS_THROUGH,
    SUBPROCESS,
    proxy_latency,
    proxy_throughput,
    python_fake,
    scripted_fake,
)
from benchmarks.figures import Goal
from benchmarks.permits import ACTOR, Permits
from benchmarks.simulation import matrix

PER_SECOND = "per second"
SECONDS = "seconds"

BENCHMARKS = (
    Benchmark(
        name="call",
        about="256 callers, limit 100, the sandbox answers at once",
        unit=PER_SECOND,
        goals=(Goal(FLOOR, at_least=0.7), Goal(DESIGN, at_least=8), Goal(VERL, at_least=8)),
        open=Calls().open,
    ),
    Benchmark(
        name="call-50ms",
        about="256 callers, limit 100, the sandbox answers after 50 ms",
        unit=PER_SECOND,
        goals=(Goal(FLOOR, at_least=0.92), Goal(DESIGN, at_least=10), Goal(VERL, at_least=10)),
        open=Calls(pause=0.05).open,
    ),
    Benchmark(
        name="call-limit-10",
        about="256 callers, limit 10, the sandbox answers at once",
        unit=PER_SECOND,
        goals=(Goal(FLOOR, at_least=0.6), Goal(DESIGN, at_least=8)),
        open=Calls(limit=10).open,
    ),
    Benchmark(
        name="call-alone",
        about=(
            "time of a call of one caller alone, the sandbox answers at once; the limiter in "
            "this process"
        ),
        unit=SECONDS,
        goals=(Goal(FLOOR, at_most=1.25),),
        open=Calls(callers=1, calls=512, ray=False, alone=True).open,
    ),
    Benchmark(
        name="call-alone-ray",
        about=(
            "like call-alone, through the limiter of a Ray cluster: nearly all of it is one "
            "round trip to an actor"
        ),
        unit=SECONDS,
        goals=(),
        open=Calls(callers=1, calls=128, alone=True).open,
    ),
    Benchmark(
        name="call-local",
        about="like call, with the limiter in this process instead of Ray",
        unit=PER_SECOND,
        goals=(Goal(FLOOR, at_least=0.7),),
        open=Calls(ray=False).open,
    ),
    Benchmark(
        name="permits",
        about="256 callers acquire and release a permit of a Ray cluster, limit 100",
        unit=PER_SECOND,
        goals=(Goal(DESIGN, at_least=10),),
        open=Permits().open,
    ),
    Benchmark(
        name="permits-alone",
        about="one caller acquires and releases a permit of a Ray cluster",
        unit=PER_SECOND,
        goals=(Goal(DESIGN, at_least=1), Goal(ACTOR, at_least=0.67)),
        open=Permits(callers=1, pairs=256).open,
    ),
    Benchmark(
        name="fake",
        about="answers of the scripted fake sandbox",
        unit=PER_SECOND,
        goals=(Goal(BARE, at_least=0.95),),
        open=scripted_fake,
    ),
    Benchmark(
        name="fake-python",
        about="programs that the fake sandbox really runs (executor: python)",
        unit=PER_SECOND,
        goals=(Goal(SUBPROCESS, at_least=0.8),),
        open=python_fake,
    ),
    Benchmark(
        name="proxy",
        about="time of an answer through the fault proxy",
        unit=SECONDS,
        goals=(Goal(PASS_THROUGH, at_most=2),),
        open=proxy_latency,
    ),
    Benchmark(
        name="proxy-throughput",
        about="answers through the fault proxy, 32 connections",
        unit=PER_SECOND,
        goals=(),
        open=proxy_throughput,
    ),
    Benchmark(
        name="event-log",
        about="CPU time of a call with the event log",
        unit=SECONDS,
        goals=(Goal(WITHOUT, at_most=1.02),),
        open=logged_calls,
    ),
    Benchmark(
        name="matrix",
        about="sfusion run: all bundled scenarios",
        unit=SECONDS,
        goals=(Goal(at_most=4),),
        open=matrix,
        warm_up=False,
        rounds=3,
    ),
)
