"""Both parsers of YAML, libyaml's and PyYAML's own, read the same data with the same places."""

from __future__ import annotations

import random

import pytest

from sfusion.harness.lab.scenarios.reading import bundled_folder, in_folder
from sfusion_tools import marked_yaml
from sfusion_tools.errors import YamlError
from sfusion_tools.marked_yaml import Marked, parse_marked

PIECES = (
    "a: 1\n",
    "b:\n",
    "  - x\n",
    "  - {y: 2, z: [3, 4]}\n",
    "c: &c\n  d: 'e: f'\n",
    "g: *c\n",
    "h: |\n  text\n  more\n",
    "i: >-\n  folded\n\n  text\n",
    "? k\n: l\n",
    'm: "\\u4e2d\\n"\n',
    "n: \u6570\u5b66 # why\n",
    "o: 2001-02-30\n",
    "p: [a:b, 1:2]\n",
    "---\n",
    "%YAML 1.1\n",
    "\tq: r\n",
    "s: @t\n",
    "u: {v: w\n",
    "x: 'y\n",
    '  z: !!int "3"\n',
    "<<: {a: 2}\n",
    "\ufeffa: b\n",
    "aa: \u0085bb\u2028\n",
    "cc: \u0007\n",
    "dd: - ee\n",
    "ff: [*c, *gg]\n",
    "hh: !!python/name:os.system\n",
    "...\n",
)


def outcome(text: str) -> Marked | list[str]:
    try:
        return parse_marked(text, "f")
    except YamlError as error:
        return error.problems


def test_libyaml_changes_neither_data_nor_places_nor_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = random.Random(5)
    texts = [file.read_text() for file in in_folder(bundled_folder())[::8]]
    texts += ["".join(draw.choices(PIECES, k=draw.randint(1, 5))) for _ in range(400)]
    with_libyaml = [outcome(text) for text in texts]
    monkeypatch.setattr(marked_yaml, "_FastLoader", marked_yaml._Loader)
    for text, found in zip(texts, with_libyaml, strict=True):
        assert found == outcome(text), text
    assert sum(isinstance(found, Marked) for found in with_libyaml) > len(texts) / 10


def test_on_is_a_key_and_still_true_as_a_value() -> None:
    for text in ("{on: create, x: on}", "{on: create, x: on} # \u00e9"):
        assert parse_marked(text, "x").data == {"on": "create", "x": True}
