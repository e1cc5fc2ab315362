"""The state of a limiter as a page for Prometheus."""

from __future__ import annotations

from sfusion_tools.exposition import by_label, render, single
from sfusion_tools.limiter.messages import Snapshot

_COUNTERS = {
    "granted": "Permits granted.",
    "handed_on": "Permits that a client passed from one of its callers to the next.",
    "expired": "Permits that returned because their lease ran out.",
    "fenced": "Releases refused because the permit no longer belonged to the caller.",
    "cancelled": "Waiters that gave up.",
    "dropped": "Waiters removed because their client died.",
}


def limiter_page(name: str, snapshot: Snapshot) -> str:
    """Return the page; counters begin at 0 again when the limiter restarts."""
    gauges = [
        ("limit", "Permits that may be out at most: rate_limit.", snapshot.rate_limit),
        (
            "width",
            "Permits that may be out now: less than the limit while an adaptive limiter is narrowed.",
            snapshot.width,
        ),
        ("in_use", "Permits that are out.", snapshot.in_use),
        ("waiting", "Callers that wait for a permit.", snapshot.waiting),
        ("lease_seconds", "How long a permit lives without renewal.", snapshot.lease),
        ("learning", "1 after a restart, while clients have yet to report what they hold.", snapshot.learning),
    ]
    return render(
        [
            *(single(f"sfusion_limiter_{key}", "gauge", help, value) for key, help, value in gauges),
            *(
                single(f"sfusion_limiter_{key}_total", "counter", help, getattr(snapshot, key))
                for key, help in _COUNTERS.items()
            ),
            by_label("sfusion_limiter_client_holds", "gauge", "Permits by client.", "client", snapshot.holders),
            by_label("sfusion_limiter_client_waits", "gauge", "Waiters by client.", "client", snapshot.waiters),
        ],
        {"limiter": name},
    )
