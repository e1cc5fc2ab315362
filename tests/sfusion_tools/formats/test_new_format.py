"""A new format takes a declaration, as in docs/extending.md: parsing, rendering and serving follow
from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.fakes.sglang.calls import call_parser
from sfusion.fakes.sglang.dialects import shown_name
from sfusion.fakes.sglang.malformed import TOOLS, catalogue
from sfusion_tools import formats
from sfusion_tools.errors import FormatError, UnknownFormatError
from sfusion_tools.formats import format_for, get_format
from tests import ROOT
from tests.docs.blocks import read_page
from tests.sfusion_tools.formats.recordings import chunkings, plain, streamed

CALL = {"name": "search", "arguments": {"query": "x"}}


@pytest.fixture(autouse=True)
def only_bundled_formats_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_BY_NAME", dict(formats._BY_NAME))


def test_two_lines_of_yaml_add_a_format(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text(
        read_page(ROOT / "docs" / "extending.md", ROOT).files["toy.yaml"], encoding="utf-8"
    )
    toy = get_format(str(file))
    assert toy.render([CALL], "Well.") == 'Well.\n<call:search>{"query": "x"}</call>'
    texts = list(catalogue(3, [str(file)]))
    assert len(texts) == 28
    for text in texts:
        parsed = toy.parse(text.text, TOOLS, finish_reason=text.finish_reason)
        assert plain(parsed) == list(text.calls), text
        assert sorted((one.severity, one.kind) for one in parsed.problems) == sorted(
            text.problems
        ), text
    parser = call_parser(str(file))
    assert parser is not None
    made = parser.whole(toy.render([CALL]), TOOLS, "stop")
    assert made is not None
    assert made.pieces[0].name == "search"
    assert shown_name("toy") == "toy"


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ('call: "<c>{object}</c>"', '<c>{"name": "search", "arguments": {"query": "x"}}</c>'),
        ('call: "<c>{object}"', '<c>{"name": "search", "arguments": {"query": "x"}}'),
        (
            'call: "{object}"\n  section: ["ACTS[", "]"]',
            'ACTS[{"name": "search", "arguments": {"query": "x"}}]',
        ),
        (
            'call: "{object}"\n  section: ["<a>[", "]</a>"]\n  keys: ["", args, id]',
            '<a>[{"search": {"query": "x"}}]</a>',
        ),
        (
            'call: "<f {name}>{arguments}</f>"\n  argument: "<p {key}>{value}</p>"\n '
            ' section: ["<s>", "</s>"]',
            "<s><f search><p query>x</p></f></s>",
        ),
        (
            'call: "<f {name}>{arguments}</f>"\n  argument: "<p {key}>{value}</p>"',
            "<f search><p query>x</p></f>",
        ),
        ('call: "{name}({arguments})"\n  section: ["<py>", "</py>"]', "<py>search(query='x')</py>"),
        (
            'call: ">>{name}\\n{arguments}"\n  header: [">>", "", "\\n", all]',
            '>>search\n{"query": "x"}',
        ),
        (
            'call: "<c>{object}</c>"\n  header: ["<m>", "to ", "|", user]',
            '<m>to search|<c>{"name": "search", "arguments": {"query": "x"}}</c>',
        ),
        (
            'call: "<o>call:{name}{arguments}<c>"\n  quote: "<q>"',
            "<o>call:search{query:<q>x<q>}<c>",
        ),
    ],
)
def test_each_kind_of_declaration_is_read_and_written(
    tmp_path: Path, declared: str, text: str
) -> None:
    file = tmp_path / "formats.yaml"
    file.write_text(f"mine:\n  {declared}\n", encoding="utf-8")
    form = get_format(f"{file}:mine")
    assert form.render([CALL]) == text
    for pieces in chunkings(text):
        assert plain(streamed(form, pieces)) == [CALL]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (
            'call: "{object}"\n  section: ["<a>[", "]</a>"]\n  keys: ["", args, id]',
            '[{"search": {"query": "x"}}]</a>',
        ),
        (
            'call: "<f {name}>{arguments}</f>"\n  argument: "<p {key}>{value}</p>"\n '
            ' section: ["<s>", "</s>"]',
            "<f search><p query>x</p></f></s>",
        ),
    ],
)
def test_a_call_without_its_opening_marker_is_reported(
    tmp_path: Path, declared: str, text: str
) -> None:
    file = tmp_path / "marked.yaml"
    file.write_text(f"marked:\n  {declared}\n", encoding="utf-8")
    parsed = get_format(str(file)).parse(text)
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == ["stray_marker"]
    assert get_format("hermes").parse(text).problems == ()


def test_a_marker_without_letters_may_be_prose(tmp_path: Path) -> None:
    file = tmp_path / "arrows.yaml"
    declared = 'call: ">>>{name}\\n{arguments}"\n  header: [">>>", "", "\\n", all]'
    file.write_text(f"arrows:\n  {declared}\n", encoding="utf-8")
    assert get_format(str(file)).parse("all\nIn Python: >>> 1 + 1").problems == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("mine: {}", "mine needs a call"),
        ('mine: {call: "<c>"}', "write it with {object}, or with {name} and {arguments}"),
        ('mine: {call: "{object}"}', "marker before {object}"),
        ('mine: {call: "{name}{arguments}"}', "markers before {name}"),
        ('mine: {call: "<c>{object}</c>", ech: true}', "did you mean 'each'"),
        ('mine: {call: "<c>{object}</c>", section: "<s>"}', "expected a list of texts"),
        ('mine: {call: "<f>{name}{arguments}</f>", argument: "<p>"}', "{key} and {value}"),
        (
            'mine: {call: "<f {name}>{arguments}</f>", argument: "{key}: {value}"}',
            "before and after",
        ),
        ('mine: {call: "<c>{object}</c>", keys: [name, args]}', "[name, arguments, id]"),
        ('mine: {call: "<c>{object}</c>", keys: [name, args, 1]}', "expected a list of texts"),
        ('mine: {call: "<c>{object}{object}</c>"}', "write {object} once"),
        ('mine: {call: "<c>{object}</c>", ends: [""]}', "ends has an empty text"),
        ('mine: {call: "<c>{object}</c>", think: ["<t>"]}', "the [begin, end] of thinking"),
        ('mine: {call: "{object}", section: ["[", "]"]}', "a marker before the ["),
        ('mine: {call: "<c>{object}", header: [a, b]}', "[start, before, after] the recipient"),
        ('mine: {call: "<c>{object}", header: ["", a, b, ""]}', "has an empty start"),
        ('mine: {call: "{name}: {arguments}", header: [">", "", ":", ""]}', "with the header"),
        ('mine: {call: "{name}({arguments})"}', "a section around calls in Python"),
        ('mine: {call: "<o>{name}{arguments}<c>", quote: "<q>"}', "call:{name}{arguments}"),
        ('mine: {call: "<c>{object}</c>", think: ["<c>", "</c>"]}', "is not read back"),
        ('hermes: {call: "<c>{object}</c>"}', "there is a format hermes already"),
        ('a: {call: "<c>{object}</c>", aliases: [qwen]}', "there is a format qwen already"),
        ('mine: {call: "<c>{object}</c>", models: "("}', "expected a regular expression"),
        ('mine: {call: "<c>{object}</c>", models: "a{9999999999}"}', "a regular expression"),
        ('a: {call: "<c>{object}</c>"}\nb: {call: "<d>{object}</d>"}', "declares a, b"),
        ("- x", "expected a mapping"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, content: str, reason: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(FormatError) as error:
        get_format(str(file))
    assert reason in str(error.value)
    assert str(file) in str(error.value)


def test_a_format_of_a_file_is_found_by_its_model_template_and_alias(tmp_path: Path) -> None:
    file = tmp_path / "zebra.yaml"
    file.write_text(
        'zebra:\n  call: "<zz>{object}</zz>"\n  models: "zebra|qwen"\n'
        '  signs: ["<zz>", "<tool_call>"]\n  aliases: [stripes]\n'
        'plain:\n  call: "<yy>{object}</yy>"\n'
        'list:\n  call: "{name}({arguments})"\n  section: ["[", "]"]\n',
        encoding="utf-8",
    )
    template = "{{ x }} <|im_start|> <tool_call> <zz> [1]"
    assert format_for(model="org/zebra-7b") is None
    zebra = get_format(f"{file}:zebra")
    assert get_format("stripes") is zebra
    assert format_for(model="org/Zebra-7b") is zebra
    assert format_for(model="Qwen2.5-7B") is zebra
    assert format_for(template=template) is zebra
    assert format_for(template="{{ x }} <yy>") is get_format("plain")
    other = format_for(template=template, accept=lambda form: form is not zebra)
    assert other is get_format("qwen25")
    assert format_for(template="{{ [1] }}") is None
    assert format_for(model="NousResearch/Hermes-3") is get_format("hermes")


def test_a_file_with_a_name_that_is_taken_registers_no_format(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    declared = 'other: {call: "<c>{object}</c>"}\nhermes: {call: "<d>{object}</d>"}'
    file.write_text(declared, encoding="utf-8")
    with pytest.raises(FormatError, match="there is a format hermes already"):
        get_format(f"{file}:other")
    with pytest.raises(UnknownFormatError):
        get_format("other")


def test_a_name_that_a_file_does_not_declare_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text('one: {call: "<c>{object}</c>"}', encoding="utf-8")
    with pytest.raises(UnknownFormatError, match="did you mean 'one'"):
        get_format(f"{file}:onn")
