"""A soak in virtual time: a day of training steps, a million calls, every promise judged, and the
memory measured.

    python -m benchmarks.soak [--calls 1000000] [--steps 1440] [--journal FILE]

The whole stack of world sim (workers, limiter, fake sandbox) runs as one process from the first
call to the last. The calls come in steps, as in training. When all calls of a step have ended and
all permits are back, its part of the journal is judged by the usual promises, written to the file
and dropped. Exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.soaking import Milestone, run_soak


def show(milestone: Milestone) -> None:
    memory = milestone.memory / 2**20
    written = milestone.written / 2**20
    hours = milestone.at / 3600
    print(
        f"{milestone.calls:>9,} {hours:>7.2f} h {memory:>5.0f} MB {written:>7,.0f} MB "
        f"{milestone.cpu:>6.0f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1440)
    parser.add_argument(
        "--journal", type=Path, default=Path("/dev/null"), help="where to write the journal"
    )
    parser.add_argument(
        "--show", type=int, default=100_000, help="measure after each so many calls"
    )
    options = parser.parse_args()
    print(f"{'calls':>9} {'virtual':>9} {'RSS':>8} {'journal':>10} {'CPU':>8}")
    journal = run_soak(
        calls=options.calls,
        steps=options.steps,
        journal=options.journal,
        every=options.show,
        show=show,
    )
    for sentence in dict.fromkeys(
        f"{verdict.state}: {verdict.promise}: {verdict.sentence}" for verdict in journal.failed
    ):
        print(f"  {sentence}")
    print(
        f"{journal.all_events:,} events; verdicts of {options.steps:,} steps: "
        f"{dict(journal.states)}"
    )
    return 1 if journal.states["broken"] or not journal.calls else 0


if __name__ == "__main__":
    sys.exit(main())
