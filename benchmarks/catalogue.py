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

PER_SECOND, SECONDS = "per second", "seconds"

BENCHMARKS = (
    Benchmark(
        "call",
        "256 callers, limit 100, the sandbox answers at once",
        PER_SECOND,
        (Goal(FLOOR, at_least=0.7), Goal(DESIGN, at_least=8), Goal(VERL, at_least=8)),
        Calls().open,
    ),
    Benchmark(
        "call-50ms",
        "256 callers, limit 100, the sandbox answers after 50 ms",
        PER_SECOND,
        (Goal(FLOOR, at_least=0.92), Goal(DESIGN, at_least=10), Goal(VERL, at_least=10)),
        Calls(pause=0.05).open,
    ),
    Benchmark(
        "call-limit-10",
        "256 callers, limit 10, the sandbox answers at once",
        PER_SECOND,
        (Goal(FLOOR, at_least=0.6), Goal(DESIGN, at_least=8)),
        Calls(limit=10).open,
    ),
    Benchmark(
        "call-alone",
        (
            "time of a call of one caller alone, the sandbox answers at once; the limiter in "
            "this process"
        ),
        SECONDS,
        (Goal(FLOOR, at_most=1.25),),
        Calls(callers=1, calls=512, ray=False, alone=True).open,
    ),
    Benchmark(
        "call-alone-ray",
        (
            "like call-alone, through the limiter of a Ray cluster: nearly all of it is one "
            "round trip to an actor"
        ),
        SECONDS,
        (),
        Calls(callers=1, calls=128, alone=True).open,
    ),
    Benchmark(
        "call-local",
        "like call, with the limiter in this process instead of Ray",
        PER_SECOND,
        (Goal(FLOOR, at_least=0.7),),
        Calls(ray=False).open,
    ),
    Benchmark(
        "permits",
        "256 callers acquire and release a permit of a Ray cluster, limit 100",
        PER_SECOND,
        (Goal(DESIGN, at_least=10),),
        Permits().open,
    ),
    Benchmark(
        "permits-alone",
        "one caller acquires and releases a permit of a Ray cluster",
        PER_SECOND,
        (Goal(DESIGN, at_least=1), Goal(ACTOR, at_least=0.67)),
        Permits(callers=1, pairs=256).open,
    ),
    Benchmark(
        "fake",
        "answers of the scripted fake sandbox",
        PER_SECOND,
        (Goal(BARE, at_least=0.95),),
        scripted_fake,
    ),
    Benchmark(
        "fake-python",
        "programs that the fake sandbox really runs (executor: python)",
        PER_SECOND,
        (Goal(SUBPROCESS, at_least=0.8),),
        python_fake,
    ),
    Benchmark(
        "proxy",
        "time of an answer through the fault proxy",
        SECONDS,
        (Goal(PASS_THROUGH, at_most=2),),
        proxy_latency,
    ),
    Benchmark(
        "proxy-throughput",
        "answers through the fault proxy, 32 connections",
        PER_SECOND,
        (),
        proxy_throughput,
    ),
    Benchmark(
        "event-log",
        "CPU time of a call with the event log",
        SECONDS,
        (Goal(WITHOUT, at_most=1.02),),
        logged_calls,
    ),
    Benchmark(
        "matrix",
        "sfusion run: all bundled scenarios",
        SECONDS,
        (Goal(at_most=4),),
        matrix,
        warm_up=False,
        rounds=3,
    ),
)
