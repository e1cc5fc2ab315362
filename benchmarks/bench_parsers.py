"""How the time to parse a text grows with its length, for each tool-call format and shape of text.

    python -m benchmarks.bench_parsers [--largest 1048576] [--piece 16] [--format hermes] [--shape
    blanks]

Each text is parsed whole, and streamed in pieces of a few characters, at four lengths of which the
last is the largest. ``growth`` is the factor per doubling of the length: 2 is linear, 4 is
quadratic. A shape stops at the first length that takes longer than ``--patience`` seconds, and is
then marked. Times are of the processor, so that a busy machine matters little.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator

from benchmarks.texts import SHAPES, Shape, parse
from sfusion_tools.formats import Format, format_names, get_format


def seconds(form: Format, text: str, piece: int) -> float:
    gc.collect()
    begin = time.thread_time()
    parse(form, text, piece)
    return time.thread_time() - begin


def measured(
    form: Format, shape: Shape, sizes: list[int], piece: int, patience: float
) -> Iterator[float]:
    """Yield the seconds for each size, up to the first that takes too long."""
    for size in sizes:
        taken = seconds(form, shape(form, size), piece)
        yield taken
        if taken > patience:
            return


def shown(times: list[float], sizes: list[int]) -> str:
    doublings = (len(times) - 1) * 2
    growth = f"{(times[-1] / times[0]) ** (1 / doublings):4.2f}" if doublings else "   –"
    stopped = (
        "" if len(times) == len(sizes) else f"  STOPPED at {sizes[len(times) - 1]:,} characters"
    )
    return f"{times[-1]:8.2f} s  {growth}{stopped}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=2**20, help="characters of the longest text")
    parser.add_argument("--piece", type=int, default=16, help="characters in a piece of a stream")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds after which a shape is stopped"
    )
    parser.add_argument(
        "--format", choices=format_names(), action="append", help="only this format"
    )
    parser.add_argument("--shape", choices=tuple(SHAPES), action="append", help="only this shape")
    args = parser.parse_args()
    sizes = [args.largest >> shift for shift in (6, 4, 2, 0)]
    print(f"{'format':<12} {'shape':<23} {'whole':>10}  growth {'streamed':>10}  growth")
    for name in args.format or format_names():
        for title in args.shape or SHAPES:
            whole, streamed = (
                shown(
                    list(
                        measured(
                            form=get_format(name),
                            shape=SHAPES[title],
                            sizes=sizes,
                            piece=piece,
                            patience=args.patience,
                        )
                    ),
                    sizes,
                )
                for piece in (0, args.piece)
            )
            print(f"{name:<12} {title:<23} {whole}   {streamed}", flush=True)


if __name__ == "__main__":
    main()
