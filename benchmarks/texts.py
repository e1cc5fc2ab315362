"""Texts of every length in which a parser of tool calls could be slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from sfusion_tools.formats import Format, Toolbox

Shape = Callable[[Format, int], str]
TOOLS = [{"function": {"name": "TOOL"}}]


def repeated(unit: Callable[[Format], str]) -> Shape:
    def text(form: Format, size: int) -> str:
        one = unit(form)
        return one * (size // len(one) + 1)

    return text


def argument(form: Format, value: str) -> str:
    """Write a call whose only argument is ``value`` as it stands, in place of the text VALUE."""
    text = form.example.replace('string="true"', 'string="false"').replace(
        'type="string"', 'type="array"'
    )
    quotes = ('"', "'", getattr(form.parser, "quote", ""), "")
    return reduce(
        lambda written, quote: written.replace(f"{quote}VALUE{quote}", value), quotes, text
    )


def unclosed(form: Format) -> str:
    """The first part of a call, without the closing quote of its argument."""
    return form.example[: form.example.index("VALUE") + 5]


def crowd(form: Format, size: int) -> str:
    """As many different calls as fit, in one section."""
    return form.write_section(
        [
            form.write_call(
                "TOOL", form.write_arguments("TOOL", {"KEY": f"VALUE {place}"}, Toolbox()), place
            )
            for place in range(size // 60 + 1)
        ]
    )


def crowded(size: int) -> str:
    """Different objects one after the other, where only one belongs."""
    return "".join(
        f'{{"name": "TOOL", "arguments": {{"a": {number}}}}}\n' for number in range(size // 45)
    )


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
    "deep nesting": lambda form, size: argument(
        form, '{"a":' * (size // 6) + "1" + "}" * (size // 6)
    ),
    "deep and unclosed": lambda form, size: argument(form, "[" * size),
    "long string": lambda form, size: argument(form, '"' + "x = 1; " * (size // 7) + '"'),
    "escapes": lambda form, size: argument(form, '"' + '\\"\\n\\\\' * (size // 6) + '"'),
    "unclosed escapes": lambda form, size: argument(form, "'" + "\\'" * (size // 2)),
    "blanks in a call": lambda form, size: argument(form, " " * size + '"x"' + " " * size),
    "blanks after an opener": lambda form, size: form.parser.openers[-1] + "{" + " " * size,
    "list of numbers": lambda form, size: (
        form.parser.openers[-1] + "[[" + "1," * (size // 2) + "1]]" + form.closing
    ),
    "calls in one tag": lambda form, size: form.example.replace(
        '{"name"', crowded(size) + '{"name"'
    ),
    "sections without a call": repeated(lambda form: f"{form.parser.openers[0]} TOOL ({{"),
    "other spellings": repeated(
        lambda form: '{"id": 1, "type": "function", [await functions.x\u200b<invoke name='
    ),
    "strings side by side": lambda form, size: argument(form, "'a'" * (size // 3)),
    "long word": lambda form, size: argument(form, "x" * size),
}


def parse(form: Format, text: str, piece: int) -> None:
    """Parse a text in pieces of so many characters; 0 is all at once."""
    stream = form.stream(TOOLS)
    for start in range(0, len(text), piece or len(text)):
        stream.feed(text[start : start + (piece or len(text))])
    stream.finish()
