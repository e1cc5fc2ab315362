"""What each feature costs: ``python -m tests.rent`` prints lines of product and tests, and seconds.

A feature that few people use and that costs much is the one to look at when something has to go.
``--junit FILE`` takes the seconds from pytest's ``--junitxml`` of a whole run; without it they are
those of the last run, which stand in CONTRIBUTING.md. ``--write`` puts the table there.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from tests import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- generated: python -m tests.rent --write -->\n"
END = "<!-- end -->\n"
PRODUCT = ("sfusion", "sfusion_tools", "fakes", "harness", "benchmarks")
"""The folders whose modules belong to features; a module of ``tests`` does as well."""
HEADINGS = ("feature", "lines of product", "lines of tests", "seconds of CI")


@dataclass(frozen=True)
class Feature:
    """Something that people come for, with the files and folders that it consists of.

    A module belongs to the feature with the longest path above it: ``harness/lab/worlds/ray.py``
    can be another feature than ``harness/lab``.
    """

    name: str
    product: tuple[str, ...]
    tests: tuple[str, ...]


FEATURES = (
    Feature(
        "tool and sandbox client",
        ("sfusion_tools", "sfusion_tools/sandbox"),
        ("tests/sfusion_tools", "tests/sfusion_tools/sandbox", "tests/special_e2e"),
    ),
    Feature(
        "limiter, `sfusion limiter`",
        ("sfusion_tools/limiter", "harness/serving/commands/limiter.py"),
        (
            "tests/sfusion_tools/limiter",
            "tests/harness/serving/test_limiter.py",
            "tests/ray/test_cluster.py",
            "tests/ray/test_killed.py",
            "tests/ray/test_single_node.py",
        ),
    ),
    Feature(
        "tool-call formats, `parse`",
        ("sfusion_tools/formats", "harness/rollouts/commands/parse.py"),
        ("tests/sfusion_tools/formats", "tests/harness/rollouts/commands/test_parse.py"),
    ),
    Feature(
        "rollout driver and tokenizers",
        ("sfusion_tools/rollout", "sfusion_tools/tokenizers.py"),
        ("tests/sfusion_tools/rollout", "tests/sfusion_tools/tokenizers", "tests/templates"),
    ),
    Feature(
        "reward",
        ("sfusion_tools/reward.py", "sfusion_tools/code_blocks.py", "sfusion_tools/gsm8k_tool.py"),
        (
            "tests/sfusion_tools/test_reward.py",
            "tests/sfusion_tools/test_code_blocks.py",
            "tests/sfusion_tools/test_gsm8k.py",
        ),
    ),
    Feature(
        "MCP, `serve mcp`",
        (
            "sfusion_tools/mcp_server.py",
            "sfusion_tools/mcp_tool.py",
            "harness/serving/commands/serve_mcp.py",
        ),
        ("tests/harness/serving/test_serve_mcp.py",),
    ),
    Feature(
        "event log and metrics",
        (
            "sfusion_tools/event_lines.py",
            "sfusion_tools/event_log.py",
            "sfusion_tools/exposition.py",
            "sfusion_tools/batch_metrics.py",
            "sfusion_tools/record.py",
        ),
        (
            "tests/sfusion_tools/test_event_lines.py",
            "tests/sfusion_tools/test_event_log.py",
            "tests/sfusion_tools/test_exposition.py",
            "tests/sfusion_tools/test_batch_metrics.py",
            "tests/sfusion_tools/test_record.py",
        ),
    ),
    Feature(
        "fake sandbox, faults, HTTP server",
        ("fakes", "fakes/sandbox", "fakes/faults", "fakes/wire", "harness/serving"),
        (
            "tests/fakes",
            "tests/fakes/sandbox",
            "tests/fakes/faults",
            "tests/fakes/wire",
            "tests/harness/serving",
        ),
    ),
    Feature(
        "confined execution of programs",
        ("fakes/sandbox/executors",),
        ("tests/attacks", "tests/fakes/sandbox/executors"),
    ),
    Feature(
        "proxy",
        ("fakes/proxy", "harness/serving/commands/proxy.py"),
        ("tests/fakes/proxy", "tests/harness/serving/test_proxy.py"),
    ),
    Feature(
        "fake sglang",
        ("fakes/sglang", "harness/serving/commands/serve_sglang.py"),
        (
            "tests/fakes/sglang",
            "tests/harness/serving/serve_sglang.py",
            "tests/harness/serving/test_serve_sglang.py",
        ),
    ),
    Feature(
        "fakes of Daytona, OpenEnv and E2B",
        ("fakes/daytona", "fakes/e2b", "fakes/hosting", "fakes/lifecycle", "fakes/openenv"),
        ("tests/fakes/daytona", "tests/fakes/e2b", "tests/fakes/lifecycle", "tests/fakes/openenv"),
    ),
    Feature(
        "scenarios, worlds, `run`",
        ("harness/core", "harness/lab"),
        ("tests/harness/core", "tests/harness/lab"),
    ),
    Feature(
        "promises",
        ("harness/lab/promises", "harness/lab/facts"),
        ("tests/harness/lab/promises", "tests/harness/lab/facts", "tests/proof", "tests/own_bugs"),
    ),
    Feature(
        "world ray",
        (
            "harness/lab/worlds/ray.py",
            "harness/lab/worlds/ray_cluster.py",
            "harness/lab/worlds/ray_guardian.py",
            "harness/lab/worlds/ray_limiter.py",
            "harness/lab/worlds/ray_worker.py",
            "harness/lab/worlds/ray_workers.py",
        ),
        ("tests/ray",),
    ),
    Feature(
        "`judge`, single calls",
        (
            "harness/trial",
            "harness/lab/client.py",
            "harness/lab/promises/findings.py",
            "harness/lab/promises/single_call_requests.py",
            "harness/lab/promises/single_call_results.py",
            "harness/lab/promises/wordings.py",
            "harness/lab/shapes",
            "harness/lab/single_calls",
            "harness/lab/worlds/canary_sandbox.py",
            "harness/lab/worlds/client_surroundings.py",
            "harness/lab/worlds/clients.py",
            "harness/lab/worlds/clients_wall.py",
            "harness/lab/worlds/wall_journals.py",
            "harness/lab/worlds/wall_plan.py",
        ),
        ("tests/harness/trial", "tests/harness/lab/promises/test_single_calls_broken.py"),
    ),
    Feature("`hunt`", ("harness/search", "harness/search/hunt"), ("tests/harness/search",)),
    Feature("`shrink`", ("harness/search/shrink",), ("tests/harness/search/shrink",)),
    Feature("`chaos`", ("harness/search/chaos",), ("tests/harness/search/chaos",)),
    Feature(
        "`look`",
        ("harness/studies/look", "harness/core/logs"),
        ("tests/harness/studies/look", "tests/harness/core/logs"),
    ),
    Feature("`learn`", ("harness/studies/learn",), ("tests/harness/studies/learn",)),
    Feature("`sweep`", ("harness/studies/sweep",), ("tests/harness/studies/sweep",)),
    Feature(
        "`compare`",
        ("harness/studies/compare", "harness/studies/__init__.py"),
        ("tests/harness/studies/compare", "tests/harness/studies"),
    ),
    Feature(
        "`poison`, `train`",
        ("harness/learning", "sfusion_tools/advantages.py"),
        ("tests/harness/learning", "tests/sfusion_tools/test_advantages.py"),
    ),
    Feature("`doctor`", ("harness/real/doctor",), ("tests/harness/real/doctor",)),
    Feature(
        "`drift`",
        ("harness/real/drift", "harness/real/probes"),
        ("tests/harness/real/drift", "tests/harness/real/probes"),
    ),
    Feature(
        "real sandboxes and containers",
        ("harness/real", "harness/real/targets"),
        ("tests/harness/real", "tests/harness/real/targets", "tests/docker"),
    ),
    Feature(
        "`rollout`, dumps, viewer",
        ("harness/rollouts", "harness/core/dumps"),
        ("tests/harness/rollouts", "tests/harness/core/dumps"),
    ),
    Feature("reports and pages", ("harness/reports",), ("tests/harness/reports",)),
    Feature(
        "pytest plugin",
        ("harness/pytest_plugin.py", "harness/pytest_items.py"),
        ("tests/harness/plugin",),
    ),
    Feature(
        "command line and package",
        ("harness", "harness/commandline", "sfusion"),
        ("tests/harness", "tests/harness/commandline", "tests/sfusion", "tests/docs"),
    ),
    Feature("verl", (), ("tests/verl",)),
    Feature("benchmarks", ("benchmarks",), ("tests/benchmarks",)),
    Feature("tools of the tests", (), ("tests", "tests/fuzz", "tests/warm")),
)


@dataclass
class Rent:
    """What a feature costs."""

    product: int = 0
    tests: int = 0
    seconds: float | None = None


def owners() -> dict[PurePosixPath, Feature]:
    """Return the feature of each declared path; raise ValueError for a path declared twice."""
    found: dict[PurePosixPath, Feature] = {}
    for feature in FEATURES:
        for path in map(PurePosixPath, (*feature.product, *feature.tests)):
            if path in found:
                raise ValueError(f"{path} belongs to {found[path].name} and to {feature.name}")
            found[path] = feature
    return found


def owner_of(path: PurePosixPath, known: Mapping[PurePosixPath, Feature]) -> Feature | None:
    """Return the feature with the longest path above a module, or the module's own."""
    above = (place for place in (path, *path.parents) if place in known)
    nearest = next(above, None)
    return None if nearest is None else known[nearest]


def modules(folders: Sequence[str]) -> Iterator[PurePosixPath]:
    """Yield every module below these folders; links to other packages are not followed."""
    for folder in folders:
        for place, _, files in os.walk(ROOT / folder, followlinks=False):
            inside = PurePosixPath(Path(place).relative_to(ROOT))
            yield from (inside / name for name in files if name.endswith(".py"))


def count_lines() -> dict[str, Rent]:
    """Return the lines of each feature."""
    known = owners()
    rents = {feature.name: Rent() for feature in FEATURES}
    for path in modules((*PRODUCT, "tests")):
        feature = owner_of(path, known)
        if feature is None:
            raise ValueError(f"{path} belongs to no feature of tests/rent.py")
        lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        if path.parts[0] == "tests":
            rents[feature.name].tests += lines
        else:
            rents[feature.name].product += lines
    return rents


def seconds_in(junit: Path) -> dict[str, float]:
    """Return the seconds of each feature's tests, from a file of pytest's ``--junitxml``.

    Those of a test whose module is not in this checkout count as tools of the tests.
    """
    known = owners()
    seconds = dict.fromkeys((feature.name for feature in FEATURES), 0.0)
    for case in ElementTree.parse(junit).iter("testcase"):
        feature = owner_of(_module_of(case), known)
        assert feature is not None, "`tests` belongs to a feature"
        seconds[feature.name] += float(case.get("time", 0.0))
    return seconds


def _module_of(case: ElementTree.Element) -> PurePosixPath:
    """Return the module of a test; its class name may end with that of a class.

    A module that failed to import is a test without a class name.
    """
    parts = (case.get("classname") or case.get("name") or "").split(".")
    for end in range(len(parts), 1, -1):
        path = PurePosixPath(*parts[:end])
        if (ROOT / path).with_suffix(".py").is_file():
            return path.with_suffix(".py")
    return PurePosixPath("tests")


def seconds_on(page: str) -> dict[str, float]:
    """Return the seconds of the last run, which the page's table has."""
    found = {}
    for line in _table_on(page).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(HEADINGS) and re.fullmatch(r"[\d,]+", cells[-1]):
            found[cells[0]] = float(cells[-1].replace(",", ""))
    return found


def _table_on(page: str) -> str:
    return page.partition(BEGIN)[2].partition(END)[0]


def table(rents: Mapping[str, Rent]) -> str:
    """Return the table in Markdown, the largest feature first, with a line for all of them."""
    ordered = sorted(rents.items(), key=lambda item: -item[1].product - item[1].tests)
    rows = [_row(name, rent) for name, rent in ordered]
    timed = [rent.seconds for rent in rents.values() if rent.seconds is not None]
    whole = Rent(
        product=sum(rent.product for rent in rents.values()),
        tests=sum(rent.tests for rent in rents.values()),
        seconds=sum(timed) if timed else None,
    )
    head = [" | ".join(HEADINGS), "--- | ---: | ---: | ---:"]
    return "".join(f"| {line} |\n" for line in (*head, *rows, _row("all", whole)))


def _row(name: str, rent: Rent) -> str:
    seconds = "" if rent.seconds is None else f"{rent.seconds:,.0f}"
    return " | ".join([name, f"{rent.product:,}", f"{rent.tests:,}", seconds])


def with_table(page: str, text: str) -> str:
    """Return the page with this table between its marks; raise ValueError if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}")
    return before + begin + text + end + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--junit", type=Path, metavar="FILE", help="pytest's --junitxml")
    parser.add_argument("--write", action="store_true", help="put the table into CONTRIBUTING.md")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    rents = count_lines()
    seconds = seconds_on(page) if options.junit is None else seconds_in(options.junit)
    for name, rent in rents.items():
        rent.seconds = seconds.get(name)
    text = table(rents)
    if options.write:
        PAGE.write_text(with_table(page, text), encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
