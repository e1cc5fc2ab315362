"""How bad a difference is: a table of rules, of which the first match decides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from sfusion.harness.real.drift.comparing import Difference, Kind

Grade = Literal["breaking", "visible", "cosmetic", "variable"]
GRADES: tuple[Grade, ...] = get_args(Grade)

_HEADER: tuple[Kind, ...] = ("header-missing", "header-extra", "header-value")
_CONTENT: tuple[Kind, ...] = ("text", "blanks", "value", "length", "type", "number-form")


@dataclass(frozen=True)
class GradingRule:
    """Grades differences of some kinds in some places."""

    name: str
    grade: Grade
    because: str
    """One sentence for the report."""
    kinds: tuple[Kind, ...]
    places: str = r".*"
    """A regular expression that the whole place must match."""
    one_empty: bool = False
    """Matches only if exactly one of the two values is empty."""
    same_media: bool = False
    """Matches only if both content types are the same apart from parameters."""

    def matches(self, difference: Difference) -> bool:
        if difference.kind not in self.kinds or re.fullmatch(self.places, difference.place) is None:
            return False
        if self.one_empty and bool(difference.left) == bool(difference.right):
            return False
        return not self.same_media or _media(difference.left) == _media(difference.right)


def _media(value: object) -> str:
    return str(value).partition(";")[0].strip().lower()


RULES: tuple[GradingRule, ...] = (
    GradingRule("no answer", "breaking", "One server answers and the other does not.", ("no-answer",)),
    GradingRule("http status", "breaking", "Clients decide by the HTTP status what to do next.", ("http-status",)),
    GradingRule(
        "content type",
        "cosmetic",
        "The media type is the same; only its parameters differ.",
        ("header-value",),
        r"header\.content-type",
        same_media=True,
    ),
    GradingRule(
        "steering header",
        "breaking",
        "Clients read content-type, location and retry-after, and act on them.",
        _HEADER,
        r"header\.(content-type|location|retry-after)",
    ),
    GradingRule(
        "allowed methods", "visible", "The methods that a 405 lists are read by people only.", _HEADER, r"header\.allow"
    ),
    GradingRule(
        "other header",
        "cosmetic",
        "No client of a sandbox reads this header, its casing or its position.",
        (*_HEADER, "header-order", "header-case"),
    ),
    GradingRule("not json", "breaking", "A client that reads one of the bodies cannot read the other.", ("not-json",)),
    GradingRule(
        "server's own log",
        "visible",
        "The output of the notebook driver is a log that no program reads.",
        ("text", "blanks"),
        r"body\.driver\.(stdout|stderr)",
    ),
    GradingRule(
        "pod name",
        "cosmetic",
        "Clients ignore the name of the machine behind a gateway.",
        ("type", "text", "blanks"),
        r"body\.executor_pod_name",
    ),
    GradingRule(
        "echo of a refusal",
        "visible",
        "The rejected input is repeated for people to read.",
        _CONTENT,
        r"body\.detail\[\d+\]\.(input|ctx)\b.*",
    ),
    GradingRule(
        "missing key", "breaking", "A client that reads this key fails on one of the two.", ("key-missing", "key-extra")
    ),
    GradingRule("renamed key", "breaking", "A client that reads this key fails on one of the two.", ("key-renamed",)),
    GradingRule("other type", "breaking", "A client that expects one JSON type cannot read the other.", ("type",)),
    GradingRule(
        "outcome",
        "breaking",
        "The status or exit code decides whether a call counts as solved.",
        ("text", "value"),
        r"body(\..*)?\.(status|return_code)",
    ),
    GradingRule(
        "whitespace in output",
        "visible",
        "The program's output differs only in whitespace.",
        ("blanks",),
        r"body\..*(stdout|display\[.*)",
    ),
    GradingRule(
        "output",
        "breaking",
        "The program's output is what the model sees and the reward compares.",
        ("text",),
        r"body\..*(stdout|display\[.*)",
    ),
    GradingRule(
        "fetched file", "breaking", "A fetched file is the program's result.", ("text", "blanks"), r"body\.files\..*"
    ),
    GradingRule(
        "kind of error",
        "breaking",
        "Clients distinguish errors by these codes.",
        ("text", "blanks"),
        r"body\.detail\[\d+\]\.(type|loc\b.*)|body\..*\.ename",
    ),
    GradingRule(
        "empty or not",
        "breaking",
        "One server sends a text where the other sends none.",
        ("text", "blanks"),
        one_empty=True,
    ),
    GradingRule("list length", "breaking", "The lists have different lengths.", ("length",)),
    GradingRule("number", "breaking", "A number or boolean that a client reads differs.", ("value",)),
    GradingRule(
        "help page", "cosmetic", "The link to a page about the error differs.", ("text",), r"body\.detail\[\d+\]\.url"
    ),
    GradingRule("wording", "visible", "The text for people or the model differs, but not its meaning.", ("text",)),
    GradingRule("whitespace", "cosmetic", "The text differs only in whitespace.", ("blanks",)),
    GradingRule("order of keys", "cosmetic", "The order of keys in a JSON object has no meaning.", ("key-order",)),
    GradingRule("formatting", "cosmetic", "The same JSON, formatted differently.", ("number-form", "body-form")),
)


RACE = GradingRule(
    "race",
    "variable",
    "One and the same server answers this probe now one way, now the other: compare several runs.",
    ("text", "blanks", "value", "length", "type"),
    r"body\..*",
)


def rule_for(difference: Difference, *, racy: bool = False) -> GradingRule:
    """Return the first rule that matches; every kind has one without conditions."""
    if racy and RACE.matches(difference):
        return RACE
    return next(rule for rule in RULES if rule.matches(difference))
