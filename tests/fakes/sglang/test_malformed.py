"""The catalogue of malformed texts: each is parsed as its entry states, whole and in pieces."""

from __future__ import annotations

import itertools

from sfusion.fakes.sglang.malformed import TOOLS, MalformedText, catalogue, kinds, malformed
from sfusion_tools.formats import format_names, get_format
from tests.cases import every
from tests.sfusion_tools.formats.recordings import chunkings, plain, streamed

SEEDS = (0, 1, 2026)


@every(itertools.product(kinds(), format_names()), "-".join)
def test_every_kind_is_parsed_as_the_catalogue_states(case: tuple[str, str]) -> None:
    kind, form = case
    for seed in SEEDS:
        entry = malformed(kind, form, seed)
        if entry is None:
            continue
        parsed = get_format(form).parse(entry.text, TOOLS, finish_reason=entry.finish_reason)
        assert plain(parsed) == list(entry.calls), entry.text
        found = sorted((problem.severity, problem.kind) for problem in parsed.problems)
        assert found == sorted(entry.problems), entry.text
        if seed != SEEDS[len(form) % 3]:
            continue  # one of them in pieces is enough
        whole = get_format(form).parse(entry.text, TOOLS)
        assert [
            pieces
            for pieces in chunkings(entry.text)
            if streamed(get_format(form), pieces, TOOLS) != whole
        ] == []


@every(format_names(), str)
def test_every_format_has_most_kinds(form: str) -> None:
    made = {entry.kind for entry in catalogue(3, [form])}
    assert len(made) >= 13
    assert made >= {
        "truncated",
        "bad_sibling",
        "unknown_tool",
        "call_in_think",
        "unclosed_think",
        "fenced_code",
    }


def test_texts_are_a_function_of_the_seed() -> None:
    assert list(catalogue(5)) == list(catalogue(5))
    assert [entry.text for entry in catalogue(5)] != [entry.text for entry in catalogue(6)]


def test_texts_of_a_format_do_not_depend_on_the_other_formats() -> None:
    alone = list(catalogue(5, ["hermes"]))
    assert alone == [entry for entry in catalogue(5) if entry.form == "hermes"]


@every(catalogue(11), lambda entry: f"{entry.form}-{entry.kind}")
def test_the_grade_matches_the_calls_and_problems(entry: MalformedText) -> None:
    match entry.grade:
        case "harmless":
            assert entry.calls
            assert not entry.problems
        case "repaired":
            assert entry.calls
            assert entry.problems
        case "lost":
            assert entry.problems


def test_all_grades_occur() -> None:
    assert {entry.grade for entry in catalogue(0)} == {"harmless", "repaired", "lost"}
