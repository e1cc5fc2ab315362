"""The bundled suite is complete and readable, and errors in probe files name their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.harness.errors import BadProbes
from sfusion.harness.real.probes.model import Probe
from sfusion.harness.real.probes.raw_http import Server, request_bytes
from sfusion.harness.real.probes.suite import _BUNDLED, bundled_probes, chosen, read_probes, suite_with

PROBES = bundled_probes()
GROUPS = {
    *("bodies", "datasets", "files", "http", "jupyter", "languages"),
    *("memory", "output", "results", "stdin", "timeouts", "validation"),
}


def test_there_are_at_least_150_probes_in_all_groups() -> None:
    assert len(PROBES) >= 150
    assert {probe.group for probe in PROBES} == GROUPS


def test_ids_and_requests_are_unique() -> None:
    assert len({probe.id for probe in PROBES}) == len(PROBES)
    asked = [(request_bytes(probe, Server("http", "server", 80)), probe.burst) for probe in PROBES]
    twice = [probe.id for number, probe in enumerate(PROBES) if asked.index(asked[number]) != number]
    assert twice == []


def test_every_probe_has_its_own_sentence() -> None:
    sentences = [probe.about for probe in PROBES]
    assert len(set(sentences)) == len(sentences)
    assert all(len(sentence.split()) >= 4 for sentence in sentences), [one for one in sentences if len(one.split()) < 4]


def test_probes_are_bounded_in_time_and_size() -> None:
    for probe in PROBES:
        fields = probe.request.body if probe.request is not None else None
        if isinstance(fields, dict) and isinstance(limit := fields.get("run_timeout", 0), float | int):
            assert limit <= 10 or fields["code"] == "print(1)", probe.id
        if probe.request is not None:
            assert len(probe.request.content) <= 2_000_000, probe.id


def test_quick_skips_slow_probes() -> None:
    quick = chosen(PROBES, quick=True)
    assert 150 <= len(quick) < len(PROBES)
    assert not any(probe.slow for probe in quick)


def test_probes_are_chosen_by_part_of_their_id() -> None:
    assert {probe.group for probe in chosen(PROBES, keyword="stdin/ or memory/")} == {"stdin", "memory"}
    with pytest.raises(BadProbes, match=r"-k 'stdim' matches no probe; groups: bodies, .*validation"):
        chosen(PROBES, keyword="stdim")
    with pytest.raises(BadProbes, match="no probe is left"):
        chosen(PROBES, keyword="jupyter/value", quick=True)


def _file(tmp_path: Path, text: str, name: str = "own.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


GOOD = """
about: Questions of our own.
defaults: {path: /run_code, headers: {x-team: probes}, json: {language: python}}
probes:
  - id: first
    about: The first of our own questions.
    request: {json: {code: "1"}}
  - id: second
    about: The second comes as plain text.
    request: {text: hello, headers: {content-type: text/plain}}
"""


def test_defaults_of_a_file_apply_to_every_request(tmp_path: Path) -> None:
    first, second = read_probes([_file(tmp_path, GOOD)])
    assert first.id == "own/first"
    assert first.request is not None
    assert first.request.body == {"language": "python", "code": "1"}
    assert first.request.sent_headers == {"x-team": "probes", "content-type": "application/json"}
    assert second.request is not None
    assert second.request.content == b"hello"


def test_own_probes_are_added_or_replace_bundled_ones(tmp_path: Path) -> None:
    text = 'about: Replaces one.\nprobes:\n  - {id: ping, about: Another way to ask., raw: "x"}\n'
    own = read_probes([_file(tmp_path, GOOD), _file(tmp_path, text, "http.yaml")])
    suite = suite_with(own)
    assert len(suite) == len(PROBES) + 2
    assert next(probe for probe in suite if probe.id == "http/ping").raw == "x"


def test_a_folder_is_read_in_the_order_of_file_names(tmp_path: Path) -> None:
    _file(tmp_path, GOOD, "b.yaml")
    _file(tmp_path, GOOD, "a.yaml")
    assert [probe.id for probe in read_probes([tmp_path])] == ["a/first", "a/second", "b/first", "b/second"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{id: a, about: What is asked here., reqest: {}}", r"own\.yaml:3: probe 'a': reqest: unknown key; did you"),
        ("{id: a, about: What is asked here., request: {jsn: 1}}", r"jsn: unknown key; did you mean 'json'"),
        ("{id: a, about: no capital and no stop, request: {}}", r"about must be one sentence"),
        ("{id: a, request: {}}", r"about"),
        ("{about: What is asked here., request: {}}", r"probe number 1: a probe needs an id"),
        ("{id: 'a b', about: What is asked here., request: {}}", r"probe 'a b': id"),
        ("{id: a, about: What is asked here., request: {json: 1, text: b}}", r"give one of json, text and base64"),
        ("{id: a, about: What is asked here., request: {base64: '*'}}", r"base64 is not base64"),
        ("{id: a, about: What is asked here., request: {path: run_code}}", r"path"),
        ("{id: a, about: What is asked here., request: {method: 'G ET'}}", r"method"),
        ('{id: a, about: What is asked here., request: {headers: {"x": "a\\r\\nb"}}}', r"headers"),
        ("{id: a, about: What is asked here., request: [1]}", r"request must be a mapping"),
        ("{id: a, about: What is asked here., raw: x, request: {}}", r"either a request or raw bytes"),
        ("{id: a, about: What is asked here., raw: 世}", r"character that is not a byte"),
        (
            "{id: a, about: What is asked here., request: {}, varies: [bdy.x]}",
            r"must begin with body, header",
        ),
        ("{id: a, about: What is asked here., request: {}, burst: 1000}", r"burst"),
        ("{id: a, about: What is asked here., request: {spaces: 99999999}}", r"spaces"),
        ("5", r"own\.yaml"),
    ],
)
def test_an_invalid_probe_is_an_error_with_its_place(tmp_path: Path, entry: str, message: str) -> None:
    path = _file(tmp_path, f"about: Questions of our own.\nprobes:\n  - {entry}\n")
    with pytest.raises(BadProbes, match=message):
        read_probes([path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"own\.yaml:1: a probe file must be a mapping"),
        ("about: x\nprobes: []\n", r"own\.yaml:1: about"),
        ("about: Questions of our own.\n", r"probes: is missing"),
        ("about: Questions of our own.\nprobes: []\nextra: 1\n", r"own\.yaml:3: extra: unknown key"),
        ("about: [\n", r"not YAML"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadProbes, match=message):
        read_probes([_file(tmp_path, text)])


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    entry = "{id: same, about: What is asked here., raw: x}"
    bad = _file(tmp_path, f"about: Questions of our own.\nprobes:\n  - {entry}\n  - {entry}\n  - {{id: b}}\n")
    with pytest.raises(BadProbes) as caught:
        read_probes([bad, tmp_path / "none.yaml", tmp_path])
    text = str(caught.value)
    assert "two probes 'own/same'" in text
    assert "none.yaml:1: cannot be read" in text
    assert "probe 'b'" in text


def test_every_group_is_a_file_of_the_package() -> None:
    assert {path.stem for path in _BUNDLED.glob("*.yaml")} == GROUPS


def test_runs_is_the_endpoint_of_probes_that_run_code() -> None:
    ran = {probe.id: probe.runs for probe in PROBES}
    assert ran["results/hello"] == "/run_code"
    assert ran["jupyter/prints"] == "/run_jupyter"
    assert ran["http/run-code-query"] == "/run_code"
    assert ran["http/ping"] is None
    assert ran["http/run-code-put"] is None
    assert Probe(id="a/b", about="Bytes that are not HTTP.", raw="x").runs is None
