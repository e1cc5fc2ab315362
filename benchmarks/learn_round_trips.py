"""Is what `sfusion learn` learns from a log right? Eight made-up productions, played in real time.

    python -m benchmarks.learn_round_trips [--keep DIR] [--log tool|sandbox] [NAME...]

Each file of benchmarks/productions is a production whose trouble is known. Its sandboxes are fakes
in processes of their own; the real tool calls them over sockets and writes its event log. A
scenario is learned from that log alone (or from the log of the sandboxes) and run in virtual time.
The table shows the cause that was named, and how far the figures of the scenario are from those of
the log: outcomes within 2 points, p95 within 15%.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sfusion.harness.core.logs.reading import read_records
from sfusion.harness.lab.scenarios import read_scenarios
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.calling import Workload
from sfusion.harness.studies.learn.attempts import joined
from sfusion.harness.studies.learn.check import Checked, check
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion_tools import SandboxFusionTool

PRODUCTIONS = Path(__file__).parent / "productions"
CAUSES = {
    "quota": "quota",
    "contention": "contention",
    "degradation": "degradation",
    "crash": "crash",
    "wedge": "wedge",
    "bad-gateway": "status_502_burst",
    "slow-sandbox": "slow_sandbox",
    "malformed": "malformed_calls",
}
"""The cause that must be named for each production."""


def production(name: str) -> Scenario:
    (cell,) = read_scenarios(PRODUCTIONS / f"{name}.yaml")
    return cell


@contextlib.contextmanager
def served(scenario: Scenario, folder: Path) -> Iterator[list[str]]:
    """Run the sandboxes of a scenario, each in its own process, and yield their addresses."""
    (folder / "sandbox").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(1, scenario.sandbox.instances + 1):
            part = scenario.sandbox.instance(number)
            rules = [rule.as_data() for rule in part.faults] + [
                _event_rule(event) for event in scenario.events
            ]
            faults = folder / f"faults-{number}.yaml"
            faults.write_text(yaml.safe_dump(rules))
            command = [
                sys.executable,
                "-m",
                "sfusion",
                "serve",
                "sandbox",
                "--port",
                "0",
                "--executor",
                "scripted",
            ]
            command += ["--model", yaml.safe_dump(part.model.as_data()), "--faults", str(faults)]
            command += ["--journal", str(folder / "sandbox" / f"journal-{number}.ndjson")]
            server = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            stack.callback(_stop, server)
            servers.append(server)
        yield [_address(server) for server in servers]


def _event_rule(event: Any) -> dict[str, Any]:
    """An event of the scenario as a rule of the fake: it strikes at the first request after its
    time."""
    return {
        "name": event.kind,
        "between": [event.at, event.at + 2],
        "times": 1,
        "what": {event.kind: event.seconds},
    }


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise RuntimeError("the fake sandbox did not start")


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait(timeout=20)
    if server.stdout is not None:
        server.stdout.close()


async def call_all(scenario: Scenario, urls: list[str], log: Path) -> None:
    """Make the calls of a scenario's load with the real tool, which writes its event log."""
    load = scenario.load
    assert load is not None
    assert isinstance(scenario.tools, dict)
    own = {
        "sandbox_fusion_url": urls,
        "limiter": "local",
        "limiter_name": scenario.scenario,
        "event_log": str(log),
    }
    tool = SandboxFusionTool({**scenario.tools, **own})
    workload = Workload(scenario, 1.0)
    numbers = iter(range(1, load.calls + 1))

    async def caller() -> None:
        for number in numbers:
            await asyncio.sleep(workload.think(number))
            call = workload.prepare(number)
            await tool.execute(call.call, call.arguments, call_id=call.call)

    await asyncio.gather(*(caller() for _ in range(load.concurrency)))


def play(scenario: Scenario, folder: Path) -> None:
    """Play a production in real time; FOLDER/tool and FOLDER/sandbox then hold the logs of both
    sides."""
    folder.mkdir(parents=True, exist_ok=True)
    with served(scenario, folder) as urls:
        asyncio.run(call_all(scenario, urls, folder / "tool" / "events.ndjson"))


def learned_from(log: Path, name: str) -> tuple[Learned, Checked]:
    """Learn from a log, and check what was learned."""
    calls = joined(read_records([log]))
    learned = learn(calls)
    text = scenario_text(
        learned, f"learned-{name}", f"{len(calls):,} calls of the production {name}"
    )
    (log / "learned.yaml").write_text(text)
    return learned, check(learned, text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", choices=[[], *CAUSES], help="productions; all by default"
    )
    parser.add_argument("--keep", type=Path, help="keep logs and learned scenarios in this folder")
    parser.add_argument(
        "--log", choices=["tool", "sandbox"], default="tool", help="whose log to learn from"
    )
    given = parser.parse_args()
    right = True
    print(
        "| production | main cause learned | outcomes, largest difference | p50 | p95 | "
        "calls per second | |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.names or CAUSES:
            folder = (given.keep or Path(temporary)) / name
            play(production(name), folder)
            learned, checked = learned_from(folder / given.log, name)
            rows = {row.name: row for row in checked.rows}
            points = [
                float(row.difference.split()[0])
                for row in checked.rows
                if row.name in learned.figures.outcomes
            ]
            ok = checked.agrees and learned.headline == CAUSES[name]
            right = right and ok
            cells = [
                name,
                learned.causes[0].says if learned.causes else "none",
                f"{max(map(abs, points)):.1f} points",
            ]
            for key in ("p50 of a call", "p95 of a call", "calls per second"):
                row = rows[key]
                cells.append(f"{row.log} / {row.run} ({row.difference})")
            print("| " + " | ".join([*cells, "agrees" if ok else "DIFFERS"]) + " |", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
