"""``sfusion parse``, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sfusion.harness.cli import app
from tests.sfusion_tools.formats.recordings import DATA

GOOD = '<tool_call>\n{"name": "search", "arguments": {"query": "q"}}\n</tool_call>'
BAD = '<tool_call>\n{"name": "search", "arguments": {"query": "q"}\n</tool_call>'
TOOL_CONFIG = """
tools:
  - class_name: sfusion_tools.gsm8k_tool.Gsm8kTool
    config: {type: native}
    tool_schema:
      type: function
      function:
        name: calc_gsm8k_reward
        description: Score.
        parameters: {type: object, properties: {}}
"""


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(app, ["parse", *arguments], input=text.encode("utf-8"))


def test_a_good_text_shows_its_calls_and_exits_with_0() -> None:
    result = run("--format", "hermes", text=f"Let me see.\n{GOOD}")
    assert result.exit_code == 0
    assert "1 call, 0 refused" in result.output
    assert "query = q" in result.output
    assert "Let me see." in result.output
    assert "\x1b" not in result.output


def test_a_refused_call_is_explained_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_text(f"{GOOD}\n{BAD}", encoding="utf-8")
    result = run("--format", "hermes", str(file))
    assert result.exit_code == 1
    assert "1 call, 1 refused" in result.output
    assert "bad_json" in result.output
    assert "expected ',' or '}'" in result.output


@pytest.mark.parametrize("name", ["tools.json", "tools.yaml"])
def test_tools_are_read_from_a_json_list_or_a_tool_config(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(
        TOOL_CONFIG if name.endswith("yaml") else (DATA / "tools.json").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    result = run(
        "--format",
        "hermes",
        "--tools",
        str(file),
        text=GOOD.replace('"search"', '"calc_gsm8k_rewrd"'),
    )
    assert result.exit_code == 1
    assert 'did you mean "calc_gsm8k_reward"' in result.output


def test_jsonl_writes_one_line_per_line_with_problems_as_data() -> None:
    lines = [
        {"id": 1, "format": "hermes", "text": GOOD},
        {"id": "b", "format": "qwen", "text": f"a\u2028b{BAD}"},
    ]
    result = run(
        "--jsonl", text="\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n"
    )
    assert result.exit_code == 0
    first, second = map(json.loads, result.output.splitlines())
    assert first == {
        "id": 1,
        "content": "",
        "calls": [{"name": "search", "arguments": {"query": "q"}}],
        "problems": [],
    }
    assert second["id"] == "b"
    assert second["calls"] == []
    assert [problem["kind"] for problem in second["problems"]] == ["bad_json"]


def test_jsonl_reports_bad_lines_parses_the_others_and_exits_with_2() -> None:
    lines = [
        '{"id": 1}',
        "nonsense",
        "[1]",
        '{"format": "hermse", "text": ""}',
        '{"id": 5, "format": "glm", "text": ""}',
    ]
    result = run("--jsonl", text="\n".join(lines))
    assert result.exit_code == 2
    for number, word in (
        (1, "format is missing"),
        (2, "not JSON"),
        (3, "found list"),
        (4, "did you mean 'hermes'"),
    ):
        assert any(f"line {number}:" in line and word in line for line in result.stderr.split("\n"))
    assert json.loads(result.stdout)["id"] == 5


def test_jsonl_keeps_a_lone_surrogate() -> None:
    result = run("--jsonl", text='{"id": 1, "format": "hermes", "text": "\\ud800"}')
    assert result.exit_code == 0
    assert json.loads(result.stdout)["content"] == "\ud800"


HEX = "0x" + "f" * 3600
BAD_LINES = [
    b'{"format": "\\ud800", "text": ""}',
    b'{"format": "hermes", "text": "\xff"}',
    b'{"id": ' + b"9" * 5000 + b', "format": "hermes", "text": ""}',
    b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b', "format": "hermes", "text": ""}',
    b'{"\\ud800": 1}',
]
ODD_TEXTS = [
    ("pythonic", f"[search(query={HEX})]"),
    ("pythonic", f"[search(query={{{HEX}: 1}})]"),
    ("llama3", f"{{'name': {HEX}, 'parameters': {{}}}}"),
    ("llama3", f"{{'name': 'search', 'parameters': {HEX}}}"),
    (
        "glm45",
        f"<tool_call>search\n<arg_key>top_k</arg_key>\n<arg_value>{HEX}</arg_value>\n</tool_call>",
    ),
    ("pythonic", "[search(query='\ud800')]"),
    ("hermes", '<tool_call>\n{"name": "\ud800", "arguments": {}}\n</tool_call>'),
]


def test_jsonl_never_stops_at_a_line() -> None:
    """Neither what cannot be read, nor what Python cannot write, keeps the other lines from being
    parsed."""
    odd = [
        json.dumps(
            {"id": "\udfff", "format": form, "text": text, "finish_reason": ["\ud800"]}
        ).encode()
        for form, text in ODD_TEXTS
    ]
    last = json.dumps({"id": "last", "format": "hermes", "text": GOOD}).encode()
    result = CliRunner().invoke(
        app, ["parse", "--jsonl"], input=b"\n".join([*BAD_LINES, *odd, last])
    )
    assert result.exit_code == 2
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == [
        f"line {n}" for n in range(1, 6)
    ]
    *answers, final = (json.loads(line) for line in result.stdout.splitlines())
    assert final["calls"] == [{"name": "search", "arguments": {"query": "q"}}]
    assert len(answers) == len(odd)
    assert [bool(answer["calls"] or answer["problems"]) for answer in answers] == [True] * len(odd)
    assert not any(
        problem["kind"] == "parser_failed" for answer in answers for problem in answer["problems"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--format is missing"),
        (["--format", "herms"], "did you mean 'hermes'?"),
        (["--format", "hermes", "no-such-file.txt"], "cannot be read"),
        (["--format", "hermes", "--tools", "no-such-file.yaml"], "cannot be read"),
    ],
)
def test_wrong_input_exits_with_2_and_one_sentence(arguments: list[str], message: str) -> None:
    result = run(*arguments, text=GOOD)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("content", ["tools: 7", "- 1", "{", "- {function: {}}", "a: [b"])
def test_a_wrong_tools_file_exits_with_2(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(content, encoding="utf-8")
    result = run("--format", "hermes", "--tools", str(file), text=GOOD)
    assert result.exit_code == 2
    assert str(file) in result.stderr


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_bytes(b"\xff\xfe")
    result = run("--format", "hermes", str(file))
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


def test_control_characters_are_escaped_on_the_terminal() -> None:
    result = run("--format", "hermes", text="\x1b[31mred\n" + GOOD.replace('"q"', '"\\u001b[2J"'))
    assert "\x1b" not in result.output
    assert "\\x1b[2J" in result.output
