"""The limiter's page for Prometheus, read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
from dataclasses import fields

from prometheus_client.parser import text_string_to_metric_families

from sfusion_tools.limiter import Limiter, LimiterSettings, LocalTransport, Snapshot, local_host
from sfusion_tools.limiter.metrics import limiter_page
from tests.sfusion_tools.limiter.holding import give, take

NAME = 'the "big"\\one'


async def test_the_page_shows_everything_that_a_snapshot_counts() -> None:
    host = local_host(LimiterSettings(rate_limit=2, lease=7.5))
    first, second = (Limiter(LocalTransport(host), name=name) for name in ("one", "two"))
    permits = [await take(first), await take(first)]
    waits = asyncio.create_task(take(second))
    while host.snapshot().waiting == 0:  # noqa: ASYNC110  # nothing to wait on: the state is another object's
        await asyncio.sleep(0)
    snapshot = host.snapshot()
    families = {
        family.name: family
        for family in text_string_to_metric_families(limiter_page(NAME, snapshot))
    }
    for permit in permits:
        await give(permit)
    await give(await waits)
    await first.aclose()
    await second.aclose()
    samples = [sample for family in families.values() for sample in family.samples]
    assert {sample.labels["limiter"] for sample in samples} == {NAME}
    plain = {
        sample.name.removeprefix("sfusion_limiter_"): sample.value
        for sample in samples
        if sample.labels.keys() == {"limiter"}
    }
    assert plain == {
        "limit": 2,
        "width": 2,
        "in_use": 2,
        "waiting": 1,
        "lease_seconds": 7.5,
        "learning": 0,
        **{
            f"{key}_total": getattr(snapshot, key)
            for key in ("granted", "handed_on", "expired", "fenced")
        },
        "cancelled_total": 0,
        "dropped_total": 0,
    }
    assert plain["granted_total"] == 2
    by_client = {
        (sample.name, sample.labels["client"]): sample.value
        for sample in samples
        if "client" in sample.labels
    }
    assert by_client == {
        ("sfusion_limiter_client_holds", "one"): 2,
        ("sfusion_limiter_client_waits", "two"): 1,
    }
    by_share = {sample.name: sample.value for sample in samples if sample.labels.get("share") == ""}
    assert by_share == {
        f"sfusion_limiter_share_{key}": n for key, n in (("holds", 2), ("waits", 1))
    }
    settings = {
        "shares",
        "incarnation",
        "per_second",
        "adaptive",
        "rate_limit",
        "lease",
        "holders",
        "waiters",
    }
    shown = {name.removesuffix("_total") for name in plain}
    assert {field.name for field in fields(Snapshot)} - settings <= shown
