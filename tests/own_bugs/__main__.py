"""Play every bug in every bundled scenario, and say which of them go red: ``python -m
tests.own_bugs [NAME...]``."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from sfusion.harness.lab.runs import read_tasks, run_one
from sfusion.harness.lab.scenarios import scenario_files
from tests.own_bugs.bugs import BUGS


def main(names: list[str]) -> int:
    tasks = read_tasks(scenario_files([]), "sim")
    seen = 0
    chosen = [one for one in BUGS if not names or one.name in names]
    for one in chosen:
        broken: Counter[str] = Counter()
        red = 0
        with pytest.MonkeyPatch.context() as patch:
            one.put(patch)
            for task in tasks:
                result = run_one(task)
                found = {
                    verdict.promise for verdict in result.verdicts if verdict.state == "broken"
                }
                broken.update(found)
                red += bool(found or result.error)
        seen += bool(red)
        what = ", ".join(f"{name} {count}" for name, count in broken.most_common(4))
        print(f"{one.name:44} red in {red:3} of {len(tasks)} cells: {what}", flush=True)
    print(f"{seen} of {len(chosen)} bugs are seen")
    return 0 if seen == len(chosen) else 1


sys.exit(main(sys.argv[1:]))
