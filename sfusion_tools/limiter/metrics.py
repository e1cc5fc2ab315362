"""The state of a limiter as a page for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sfusion_tools.exposition import MetricFamily, by_label, render, single
from sfusion_tools.limiter.messages import Snapshot
from sfusion_tools.limiter.slots import MachineState


def limiter_page(name: str, state: Snapshot | MachineState) -> str:
    """Return the page. Counters begin at 0 again when the limiter restarts.

    A machine's limiter counts nothing: its page has only what is true at the moment.
    """
    families = _of_cluster(state) if isinstance(state, Snapshot) else _of_machine(state)
    return render(families, {"limiter": name})


def _of_machine(state: MachineState) -> Iterator[MetricFamily]:
    yield from _limits(state)
    yield _by_client("holds", "Permits by client.", state.holders)


def _of_cluster(snapshot: Snapshot) -> Iterator[MetricFamily]:
    yield from _limits(snapshot)
    yield _gauge("waiting", "Callers that wait for a permit.", snapshot.waiting)
    yield _gauge("lease_seconds", "How long a permit lives without renewal.", snapshot.lease)
    yield _gauge(
        "learning",
        "1 after a restart, while clients have yet to report what they hold.",
        snapshot.learning,
    )
    yield from _counters(snapshot)

    held = {name: share.in_use for name, share in snapshot.shares.items()}
    waiting = {name: share.waiting for name, share in snapshot.shares.items()}
    yield _by_share(
        "holds", "Permits by share; the empty one is that of clients without a share.", held
    )
    yield _by_share("waits", "Waiters by share.", waiting)
    yield _by_client("holds", "Permits by client.", snapshot.holders)
    yield _by_client("waits", "Waiters by client.", snapshot.waiters)


def _limits(state: Snapshot | MachineState) -> Iterator[MetricFamily]:
    yield _gauge("limit", "Permits that may be out at most: rate_limit.", state.rate_limit)
    yield _gauge(
        "width",
        "Permits that may be out now: less while an adaptive limit is narrowed.",
        state.width,
    )
    yield _gauge("in_use", "Permits that are out.", state.in_use)


def _counters(snapshot: Snapshot) -> Iterator[MetricFamily]:
    yield _counter("granted", "Permits granted.", snapshot.granted)
    yield _counter(
        "handed_on",
        "Permits that a client passed from one of its callers to the next.",
        snapshot.handed_on,
    )
    yield _counter(
        "expired", "Permits that returned because their lease ran out.", snapshot.expired
    )
    yield _counter(
        "fenced",
        "Releases refused because the permit no longer belonged to the caller.",
        snapshot.fenced,
    )
    yield _counter("cancelled", "Waiters that gave up.", snapshot.cancelled)
    yield _counter("dropped", "Waiters removed because their client died.", snapshot.dropped)


def _gauge(key: str, help: str, value: float) -> MetricFamily:
    return single(f"sfusion_limiter_{key}", "gauge", help, value)


def _counter(key: str, help: str, value: float) -> MetricFamily:
    return single(f"sfusion_limiter_{key}_total", "counter", help, value)


def _by_share(key: str, help: str, values: Mapping[str, float]) -> MetricFamily:
    return by_label(f"sfusion_limiter_share_{key}", "gauge", help, "share", values)


def _by_client(key: str, help: str, values: Mapping[str, float]) -> MetricFamily:
    return by_label(f"sfusion_limiter_client_{key}", "gauge", help, "client", values)
