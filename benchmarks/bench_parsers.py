"""How the time to parse a text grows with its length, for each tool-call format and shape of text.

    python benchmarks/bench_parsers.py [--largest 1048576] [--piece 16] [--format hermes] [--shape blanks]

Each text is parsed whole, and streamed in pieces of a few characters, at four lengths of which the last is the largest.
``growth`` is the factor per doubling of the length: 2 is linear, 4 is quadratic. A shape stops at the first length that
takes longer than ``--patience`` seconds, and is then marked. Times are of the processor, so that a busy machine matters
little.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator

from sfusion_tools.formats import Format, Toolbox, format_names, get_format

Shape = Callable[[Format, int], str]
TOOLS = [{"function": {"name": "TOOL"}}]


def repeated(unit: Callable[[Format], str]) -> Shape:
    def text(form: Format, size: int) -> str:
        one = unit(form)
        return one * (size // len(one) + 1)

    return text


def argument(form: Format, value: str) -> str:
    """Write a call whose only argument is ``value`` as it stands, in place of the text VALUE."""
    return form.example.replace('"VALUE"', value).replace("'VALUE'", value).replace("VALUE", value)


def unclosed(form: Format) -> str:
    """The first part of a call, without the closing quote of its argument."""
    return form.example[: form.example.index("VALUE") + 5]


def crowd(form: Format, size: int) -> str:
    """As many different calls as fit, in one section."""
    return form.write_section(
        [
            form.write_call("TOOL", form.write_arguments("TOOL", {"KEY": f"VALUE {place}"}, Toolbox()), place)
            for place in range(size // 60 + 1)
        ]
    )


def crowded(size: int) -> str:
    """Different objects one after the other, where only one belongs."""
    return "".join(f'{{"name": "TOOL", "arguments": {{"a": {number}}}}}\n' for number in range(size // 45))


SHAPES: dict[str, Shape] = {
    "prose": repeated(lambda form: "Let me see what the program prints. "),
    "blanks": lambda form, size: " " * size + ".",
    "newlines": lambda form, size: "\n" * size + ".",
    "unicode": repeated(lambda form: "数学 é 👩\u200d👩\u200d👧 \u2028"),
    "open tags": repeated(lambda form: form.parser.openers[-1]),
    "half tags": repeated(lambda form: form.parser.openers[-1][:-1] or "[x"),
    "unclosed calls": repeated(unclosed),
    "unclosed, one whole": lambda form, size: repeated(unclosed)(form, size) + form.example,
    "half calls": repeated(lambda form: form.example[: len(form.example) * 2 // 3]),
    "many calls": repeated(lambda form: form.example + "\n"),
    "many on one line": repeated(lambda form: form.example),
    "numbers on one line": repeated(lambda form: argument(form, "1")),
    "calls in one section": crowd,
    "lookalikes": repeated(lambda form: '{"name": "x", "para'),
    "nested lookalikes": lambda form, size: form.parser.openers[-1] + '{"name": ' * (size // 9),
    "nested Python": lambda form, size: form.parser.openers[-1] + "{'name': f(1, " * (size // 14),
    "deep nesting": lambda form, size: argument(form, '{"a":' * (size // 6) + "1" + "}" * (size // 6)),
    "deep and unclosed": lambda form, size: argument(form, "[" * size),
    "long string": lambda form, size: argument(form, '"' + "x = 1; " * (size // 7) + '"'),
    "escapes": lambda form, size: argument(form, '"' + '\\"\\n\\\\' * (size // 6) + '"'),
    "unclosed escapes": lambda form, size: argument(form, "'" + "\\'" * (size // 2)),
    "blanks in a call": lambda form, size: argument(form, " " * size + '"x"' + " " * size),
    "blanks after an opener": lambda form, size: form.parser.openers[-1] + "{" + " " * size,
    "list of numbers": lambda form, size: form.parser.openers[-1] + "[[" + "1," * (size // 2) + "1]]" + form.closing,
    "calls in one tag": lambda form, size: form.example.replace('{"name"', crowded(size) + '{"name"'),
    "sections without a call": repeated(lambda form: f"{form.parser.openers[0]} TOOL ({{"),
    "other spellings": repeated(lambda form: '{"id": 1, "type": "function", [await functions.x\u200b<invoke name='),
    "strings side by side": lambda form, size: argument(form, "'a'" * (size // 3)),
    "long word": lambda form, size: argument(form, "x" * size),
}


def parse(form: Format, text: str, piece: int) -> None:
    """Parse a text in pieces of so many characters; 0 is all at once."""
    stream = form.stream(TOOLS)
    for start in range(0, len(text), piece or len(text)):
        stream.feed(text[start : start + (piece or len(text))])
    stream.finish()


def seconds(form: Format, text: str, piece: int) -> float:
    gc.collect()
    begin = time.thread_time()
    parse(form, text, piece)
    return time.thread_time() - begin


def measured(form: Format, shape: Shape, sizes: list[int], piece: int, patience: float) -> Iterator[float]:
    """Yield the seconds for each size, up to the first that takes too long."""
    for size in sizes:
        taken = seconds(form, shape(form, size), piece)
        yield taken
        if taken > patience:
            return


def shown(times: list[float], sizes: list[int]) -> str:
    doublings = (len(times) - 1) * 2
    growth = f"{(times[-1] / times[0]) ** (1 / doublings):4.2f}" if doublings else "   –"
    stopped = "" if len(times) == len(sizes) else f"  STOPPED at {sizes[len(times) - 1]:,} characters"
    return f"{times[-1]:8.2f} s  {growth}{stopped}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=2**20, help="characters of the longest text")
    parser.add_argument("--piece", type=int, default=16, help="characters in a piece of a stream")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds after which a shape is stopped")
    parser.add_argument("--format", choices=format_names(), action="append", help="only this format")
    parser.add_argument("--shape", choices=tuple(SHAPES), action="append", help="only this shape")
    args = parser.parse_args()
    sizes = [args.largest >> shift for shift in (6, 4, 2, 0)]
    print(f"{'format':<12} {'shape':<23} {'whole':>10}  growth {'streamed':>10}  growth")
    for name in args.format or format_names():
        for title in args.shape or SHAPES:
            whole, streamed = (
                shown(list(measured(get_format(name), SHAPES[title], sizes, piece, args.patience)), sizes)
                for piece in (0, args.piece)
            )
            print(f"{name:<12} {title:<23} {whole}   {streamed}", flush=True)


if __name__ == "__main__":
    main()
