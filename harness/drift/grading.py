"""How bad a difference is: a table of rules, of which the first that fits decides."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from sfusion.harness.drift.difference import Difference, Kind

Grade = Literal["breaking", "visible", "cosmetic"]
GRADES: tuple[Grade, ...] = get_args(Grade)

_HEADER: tuple[Kind, ...] = ("header-missing", "header-extra", "header-value")
_CONTENT: tuple[Kind, ...] = ("text", "blanks", "value", "length", "type", "number-form")


@dataclass(frozen=True)
class GradingRule:
    """Differences of some kinds, in places that fit, have a grade."""

    name: str
    grade: Grade
    because: str
    """One sentence."""
    kinds: tuple[Kind, ...]
    places: str = r".*"
    """A regular expression for the whole place."""
    silence: bool = field(default=False)
    """Fits only when one side says nothing where the other says something."""
    same_media: bool = field(default=False)
    """Fits only when both content types name the same type, apart from parameters."""

    def fits(self, difference: Difference) -> bool:
        """Is this rule about that difference?"""
        if difference.kind not in self.kinds or re.fullmatch(self.places, difference.place) is None:
            return False
        if self.silence and bool(difference.left) == bool(difference.right):
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
        "The media type is the same, only its parameters differ.",
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
        "allowed methods", "visible", "A 405 tells other methods, which only a person reads.", _HEADER, r"header\.allow"
    ),
    GradingRule(
        "other header",
        "cosmetic",
        "No client of a sandbox reads this header, its casing or its position.",
        (*_HEADER, "header-order", "header-case"),
    ),
    GradingRule(
        "not json", "breaking", "A body that is JSON on one side only cannot be read by the same client.", ("not-json",)
    ),
    GradingRule(
        "server's own log",
        "visible",
        "What the notebook's driver printed is a log that no program reads.",
        ("text", "blanks"),
        r"body\.driver\.(stdout|stderr)",
    ),
    GradingRule(
        "pod name",
        "cosmetic",
        "The name of the machine behind a gateway, or null, means nothing to a client.",
        ("type", "text", "blanks"),
        r"body\.executor_pod_name",
    ),
    GradingRule(
        "echo of a refusal",
        "visible",
        "What a refused request held is repeated for a person to read.",
        _CONTENT,
        r"body\.detail\[\d+\]\.(input|ctx)\b.*",
    ),
    GradingRule(
        "missing key", "breaking", "A client that reads this key fails on one of the two.", ("key-missing", "key-extra")
    ),
    GradingRule("renamed key", "breaking", "A client that reads this key fails on one of the two.", ("key-renamed",)),
    GradingRule(
        "other type", "breaking", "The value has another JSON type, which a client takes for something else.", ("type",)
    ),
    GradingRule(
        "outcome",
        "breaking",
        "The status or exit code decides whether a call counts as solved.",
        ("text", "value"),
        r"body(\..*)?\.(status|return_code)",
    ),
    GradingRule(
        "blanks in output",
        "visible",
        "The program's output differs in blanks and line ends only.",
        ("blanks",),
        r"body\..*(stdout|display\[.*)",
    ),
    GradingRule(
        "output",
        "breaking",
        "What the program printed is what the model sees and the reward compares.",
        ("text",),
        r"body\..*(stdout|display\[.*)",
    ),
    GradingRule(
        "fetched file",
        "breaking",
        "The content of a fetched file is what the program made.",
        ("text", "blanks"),
        r"body\.files\..*",
    ),
    GradingRule(
        "kind of error",
        "breaking",
        "Programs tell errors apart by these codes.",
        ("text", "blanks"),
        r"body\.detail\[\d+\]\.(type|loc\b.*)|body\..*\.ename",
    ),
    GradingRule(
        "said or not",
        "breaking",
        "One side says something where the other says nothing.",
        ("text", "blanks"),
        silence=True,
    ),
    GradingRule("number of things", "breaking", "There are more or fewer of them.", ("length",)),
    GradingRule("number", "breaking", "Another number or truth value that a program reads.", ("value",)),
    GradingRule(
        "help page", "cosmetic", "The address of a page about the error.", ("text",), r"body\.detail\[\d+\]\.url"
    ),
    GradingRule(
        "wording", "visible", "The text that a person or a model sees differs, its meaning does not.", ("text",)
    ),
    GradingRule("blanks", "cosmetic", "The text differs in blanks and line ends only.", ("blanks",)),
    GradingRule("order of keys", "cosmetic", "JSON objects have no order.", ("key-order",)),
    GradingRule("way of writing", "cosmetic", "The same JSON written in another way.", ("number-form", "body-form")),
)


def rule_for(difference: Difference) -> GradingRule:
    """The first rule that fits; there is one for every kind."""
    return next(rule for rule in RULES if rule.fits(difference))
