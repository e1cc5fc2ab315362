"""The text format that Prometheus scrapes, version 0.0.4."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric and its samples, by their labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not the name of a metric")
        if (self.kind == "counter") is not self.name.endswith("_total"):
            raise ValueError(f"{self.name!r}: names of counters, and no others, end with _total")
        for label in {label for labels, _ in self.samples for label in labels}:
            if not _LABEL.fullmatch(label) or label.startswith("__"):
                raise ValueError(f"{self.name}: {label!r} is not the name of a label")


def single(name: str, kind: Literal["counter", "gauge"], help: str, value: float) -> MetricFamily:
    """Return a metric without labels."""
    return MetricFamily(name, kind, help, [({}, value)])


def by_label(
    name: str, kind: Literal["counter", "gauge"], help: str, label: str, values: Mapping[str, float]
) -> MetricFamily:
    """Return a metric with one label."""
    return MetricFamily(name, kind, help, [({label: key}, value) for key, value in values.items()])


def render(families: Iterable[MetricFamily], labels: Mapping[str, str] | None = None) -> str:
    """Return the page; every sample gets ``labels`` too."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for own, value in family.samples:
            pairs = ",".join(
                f'{name}="{_escaped(text, quoted=True)}"' for name, text in {**(labels or {}), **own}.items()
            )
            lines.append(f"{family.name}{f'{{{pairs}}}' if pairs else ''} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str, *, quoted: bool = False) -> str:
    # Half of a surrogate pair cannot be sent as UTF-8.
    text = text.replace("\\", r"\\").replace("\n", r"\n").encode("utf-8", "replace").decode()
    return text.replace('"', r"\"") if quoted else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
