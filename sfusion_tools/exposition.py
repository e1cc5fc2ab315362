"""The text format that Prometheus scrapes, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge"]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric and its samples, by their labels."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def single(name: str, kind: Kind, help: str, value: float) -> MetricFamily:
    """Return a metric without labels."""
    return MetricFamily(name, kind, help, [({}, value)])


def by_label(
    name: str, kind: Kind, help: str, label: str, values: Mapping[str, float]
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
            all_labels = _label_text({**(labels or {}), **own})
            lines.append(f"{family.name}{all_labels} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _label_text(labels: Mapping[str, str]) -> str:
    """Return labels as they stand after the name of a metric: ``{a="b"}``, nothing without any."""
    if not labels:
        return ""
    pairs = [f'{name}="{_escaped(text, quoted=True)}"' for name, text in labels.items()]
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, *, quoted: bool = False) -> str:
    # Half of a surrogate pair cannot be sent as UTF-8.
    text = text.replace("\\", r"\\").replace("\n", r"\n").encode("utf-8", "replace").decode()
    return text.replace('"', r"\"") if quoted else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # Above 2**53 a float may be whole without meaning it.
    if value == int(value) and abs(value) < 2**53:
        return repr(int(value))
    return repr(float(value))
