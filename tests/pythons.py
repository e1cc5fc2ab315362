"""Compares the journals of several interpreters: ``python -m tests.pythons PYTHON…``

Plays the bundled scenarios and hunted cases in world sim with this interpreter and each of the
others, which may have other versions of the dependencies, and prints how many of their journals
differ. Exit code 1 if one does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

from tests import ROOT

SHOWN = ("aiohttp", "pydantic", "jinja2")


def digests(hunted: int, every: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the digest of each journal of this interpreter."""
    from sfusion.harness.lab.runs.runner import play
    from sfusion.harness.lab.runs.tasks import Task, read_tasks, select_tasks
    from sfusion.harness.lab.scenarios.reading import scenario_files
    from sfusion.harness.search.hunt.case import HuntCase, scenario_of
    from sfusion.harness.search.hunt.generate import generate

    tasks, _ = select_tasks(read_tasks(scenario_files([]), "sim"))
    for task in tasks[::every]:
        yield task.name, play(task).digest()
    for number in range(0, hunted, every):
        case = HuntCase(number, generate(random.Random(number)))
        yield f"hunted {number}", play(Task(scenario_of(case), "sim")).digest()


def played_by(python: str, hunted: int, every: int) -> tuple[list[str], dict[str, str]]:
    """Return the versions of an interpreter and its digests by name."""
    command = [python, "-m", "tests.pythons", "--play", f"--hunted={hunted}", f"--every={every}"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    first, *lines = done.stdout.decode().splitlines()
    return json.loads(first), dict(json.loads(line) for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pythons",
        nargs="*",
        metavar="PYTHON",
        help="other interpreters, with sfusion's dependencies",
    )
    parser.add_argument(
        "--hunted",
        type=int,
        default=200,
        metavar="N",
        help="hunted cases beside the bundled scenarios",
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="play only every N-th")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        print(json.dumps([sys.version.split()[0], *map(version, SHOWN)]))
        for one in digests(options.hunted, options.every):
            print(json.dumps(one))
        return 0
    reference: dict[str, str] = {}
    differing: set[str] = set()
    print(f"{'Python':10}{''.join(f'{name:10}' for name in SHOWN)}{'journals':>9}{'differ':>8}")
    for python in [sys.executable, *options.pythons]:
        versions, found = played_by(python, options.hunted, options.every)
        reference = reference or found
        wrong = {name for name in reference | found if reference.get(name) != found.get(name)}
        print(f"{''.join(f'{one:10}' for one in versions)}{len(found):9}{len(wrong):8}", flush=True)
        differing |= wrong
    print("".join(f"differs: {name}\n" for name in sorted(differing)), end="")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
