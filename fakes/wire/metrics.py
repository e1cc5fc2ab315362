"""What every fake reports to Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from sfusion.fakes.wire.server import WireServer
from sfusion_tools._version import __version__
from sfusion_tools.exposition import MetricFamily, by_label, single


def server_families(kind: str, server: WireServer, *, strikes: Mapping[str, int]) -> list[MetricFamily]:
    """The metrics of a server; call this in its loop, whose clock measures the uptime."""
    ledger = server.ledger
    answers = [
        ({"method": method, "route": route, "status": str(status) if status else "none"}, float(count))
        for (method, route, status), count in sorted(ledger.answers.items())
    ]
    families = [
        MetricFamily(
            "sfusion_server_info", "gauge", "What serves this page.", [({"kind": kind, "version": __version__}, 1.0)]
        ),
        single(
            "sfusion_server_uptime_seconds",
            "gauge",
            "Seconds since it began to listen, in its own time.",
            server.now() - server.started,
        ),
        MetricFamily(
            "sfusion_server_requests_total", "counter", "Requests that ended; status none: without an answer.", answers
        ),
        by_label("sfusion_server_faults_total", "counter", "Strikes of fault rules.", "rule", strikes),
        single("sfusion_server_in_flight", "gauge", "Requests for work in flight.", ledger.in_flight),
        single("sfusion_server_connections_total", "counter", "Connections accepted.", ledger.connections),
        single("sfusion_server_open_connections", "gauge", "Open connections.", server.open_connections),
        single("sfusion_server_wedged", "gauge", "1 while it is wedged.", server.wedged_by is not None),
    ]
    if ledger.executing is not None:  # a proxy cannot know
        families += [
            single("sfusion_server_executing", "gauge", "Requests whose work is being done.", ledger.executing),
            single("sfusion_server_executions_total", "counter", "Executions that began.", ledger.started),
        ]
    return families


def queue_family(waiting: int) -> MetricFamily:
    return single("sfusion_server_queue", "gauge", "Requests that wait until others are done.", waiting)
