"""docs/metrics.md lists every metric, with its type; tests/ray checks those of the tool."""

from __future__ import annotations

import re

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLangServer
from sfusion_tools.limiter import LimiterSettings, local_host
from sfusion_tools.limiter.metrics import limiter_page
from tests import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def listed(heading: str) -> dict[str, str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(sfusion_\w+)` \| (\w+) \|", section, re.MULTILINE))


def shown(page: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))


def test_the_metrics_of_the_limiter_are_listed() -> None:
    assert shown(limiter_page("l", local_host(LimiterSettings()).snapshot())) == listed(
        "The limiter"
    )


async def test_the_metrics_of_the_fakes_and_the_proxy_are_listed() -> None:
    async with (
        FakeSandbox() as sandbox,
        FakeSGLangServer() as engine,
        FaultProxy(sandbox.url) as proxy,
    ):
        pages = [server.metrics() for server in (sandbox, engine, proxy)]
    assert shown("".join(pages)) == listed("The fakes and the proxy")
