"""constraints.txt pins everything that the test command of the README installs."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import distributions

import pytest
from hatchling.build import get_requires_for_build_editable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT
from tests.pins import CONSTRAINTS, lines, project, supported

STATED = project()
PYTHONS = supported(STATED)
PINS = [
    Requirement(line)
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
SEEDS = {"pip", "setuptools", "wheel"}
"""What virtualenv puts into a new environment; its own version, which is pinned, decides which."""


def _pinned(python: str) -> dict[str, str]:
    """The versions for this Python."""
    chosen = [
        pin for pin in PINS if pin.marker is None or pin.marker.evaluate({"python_version": python})
    ]
    assert len({pin.name for pin in chosen}) == len(chosen), "pinned twice"
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in chosen}


def _stated() -> list[Requirement]:
    """What pyproject.toml and tox.ini ask for, without sfusion's own extras."""
    extras = STATED["project"]["optional-dependencies"].values()
    texts = [
        *STATED["project"]["dependencies"],
        *(text for extra in extras for text in extra),
        *STATED["build-system"]["requires"],
        *(text for group in STATED["dependency-groups"].values() for text in group),
        *get_requires_for_build_editable(),
        *re.findall(
            r"^requires = (.+)$", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE
        ),
    ]
    return [one for one in map(Requirement, texts) if one.name != "sfusion"]


def test_every_line_is_an_exact_version_without_an_address() -> None:
    version = r"[a-z0-9-]+==[0-9a-z.+!]+"
    marker = r'; python_version (>=|<) "3\.\d+"( and python_version < "3\.\d+")?'
    line = rf"{version}({marker})?"
    text = [
        line
        for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert [one for one in text if not re.fullmatch(line, one)] == []
    assert text == sorted(text, key=lambda one: one.partition("==")[0])
    assert "/" not in CONSTRAINTS.read_text(encoding="utf-8")


@pytest.mark.parametrize("python", PYTHONS)
def test_what_the_project_asks_for_is_pinned_within_its_bounds(python: str) -> None:
    pinned = _pinned(python)
    wrong = [
        str(one)
        for one in _stated()
        if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))
    ]
    assert wrong == [], "run `tox -e pin`"


@pytest.mark.skipif(
    "SFUSION_PINNED" not in os.environ,
    reason="only the environment of `tox` has the pinned versions",
)
def test_the_environment_has_the_pinned_versions_and_nothing_else() -> None:
    installed = {canonicalize_name(one.metadata["Name"]): one.version for one in distributions()}
    for name in {"sfusion", *SEEDS} & set(installed):
        del installed[name]
    pinned = _pinned(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert len(installed) > 100
    assert {
        name: version for name, version in installed.items() if pinned.get(name) != version
    } == {}


def test_a_marker_is_written_only_where_pythons_differ() -> None:
    found = {
        "3.11": {"same": "1.0", "rises": "1.0", "gone": "1.0", "steps": "1"},
        "3.12": {"same": "1.0", "rises": "1.0", "steps": "2"},
        "3.13": {"same": "1.0", "rises": "2.0", "steps": "3"},
    }
    assert list(lines(found)) == [
        "gone==1.0",
        'rises==1.0; python_version < "3.13"',
        'rises==2.0; python_version >= "3.13"',
        "same==1.0",
        'steps==1; python_version < "3.12"',
        'steps==2; python_version >= "3.12" and python_version < "3.13"',
        'steps==3; python_version >= "3.13"',
    ]
