"""Every fenced block of README.md and docs/*.md is run or checked, or says why it cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.blocks import Block, Page, read_page
from tests.docs.checks import commands_of, differs, try_block

PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [
    read_page(path, ROOT) for path in PATHS if path.name != "extending.md"
]  # followed in test_extending.py


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_works_as_described(page: Page, tmp_path: Path) -> None:
    for name, content in page.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    wrong = []
    for block in page.blocks:
        if not block.not_run and (problem := try_block(block, tmp_path)):
            wrong.append(f"{block.place}: {problem}")
    assert not wrong, "\n\n".join(wrong)


def test_blocks_that_are_not_run_say_why(record_property: pytest.RecordProperty) -> None:
    left = [block for page in PAGES for block in page.blocks if block.not_run]
    for block in left:
        record_property(block.place, block.not_run)
        assert len(block.not_run.split()) >= 3, f"{block.place}: {block.not_run!r} does not say why"
    # Raise this only with a good reason: examples that are not run go stale. Six of them need SDKs,
    # with which tests/fakes/lifecycle/test_page.py runs them.
    assert len(left) <= 25, [block.place for block in left]


def _page(tmp_path: Path, text: str) -> Page:
    (tmp_path / "page.md").write_text(text)
    return read_page(tmp_path / "page.md", tmp_path)


def _problem(tmp_path: Path, text: str) -> str:
    (block, *_) = _page(tmp_path, text).blocks
    return try_block(block, tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\nraise SystemExit(3)\n```\n", "exit code 3"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "expected:\n2"),
        ("```python\ndef test_it():\n    assert False\n```\n", "exit code 1"),
        ("```console\necho one\n```\n\n```text\ntwo\n```\n", "expected:\ntwo"),
        ("```bash\nfalse\n```\n", "exit code 1"),
        ("```console\npip install nothing\n```\n", "say why it is not run"),
        ("```yaml\n- {what: {statsu: 503}}\n```\n", "statsu"),
        ("```yaml\nscenario: x\nabout: y\nlaod: {}\n```\n", "load"),
        ("```yaml\nanything: else\n```\n", "neither fault rules"),
        (
            "```yaml\non: push\njobs: {a: {runs-on: x, steps: [{run: sfusion run "
            "--nonsense}]}}\n```\n",
            "has no --nonsense",
        ),
        (
            "```yaml\non: push\njobs: {a: {runs-on: x, steps: [{uses: o/sfusion@v1, with: "
            "{scenario: x}}]}}\n```\n",
            "our action has no input scenario",
        ),
        (
            "```yaml\nrepos: [{repo: x, rev: y, hooks: [{id: sfusion-chek}]}]\n```\n",
            "no hook is called sfusion-chek",
        ),
        ("```json\n{,}\n```\n", "Expecting"),
        ("```text\n\n```\n", "there is nothing in it"),
        ("```\nwhat is this\n```\n", "no language"),
    ],
)
def test_checker_reports_a_broken_block(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in _problem(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        (
            "```python\nprint('took 0.3 s at 127.0.0.1:4711')\n```\n\n```text\ntook 1.25 s at "
            "127.0.0.1:80\n```\n"
        ),
        "```console\nprintf 'a\\nb\\nc\\n'\necho one two\n```\n\n```text\na\n...\nc\none …\n```\n",
        "```console\nfalse  # exit code 1: why\n```\n",
        "```yaml\nevents: [{at: 5s, kill: worker-1}]\n```\n",
    ],
)
def test_checker_ignores_ports_and_times(tmp_path: Path, text: str) -> None:
    assert _problem(tmp_path, text) == ""


def test_snippet_comments_are_parsed(tmp_path: Path) -> None:
    page = _page(
        tmp_path,
        "<details markdown>\n\n<!-- snippet: file b.py -->\n```python\npass\n```\n</details>\n"
        "<!-- snippet: not run: needs a real container -->\n\n```bash\nexit "
        "3\n```\n\ntext\n\n```bash\ntrue\n```\n",
    )
    assert page.files == {"b.py": "pass\n"}
    assert [block.not_run for block in page.blocks] == ["", "needs a real container", ""]
    assert page.blocks[1] == Block("page.md", 10, "bash", "exit 3\n", "needs a real container")


@pytest.mark.parametrize("comment", ["skip", "file hidden.txt\ncontent\n"])
def test_a_comment_that_is_misspelt_or_hides_a_file_is_refused(
    tmp_path: Path, comment: str
) -> None:
    with pytest.raises(
        ValueError,
        match="is not one of `not run: REASON`, `file NAME` or `add to FILE` on one line",
    ):
        _page(tmp_path, f"<!-- snippet: {comment} -->\n```bash\ntrue\n```\n")


def test_every_line_is_a_command_that_can_be_copied() -> None:
    assert commands_of("a \\\n  b\n# why\nc\n") == ["a    b", "c"]
    assert differs(["x"], "y")
    assert not [
        block.place
        for page in PAGES
        for block in page.blocks
        if re.search(r"^\$ ", block.text, re.MULTILINE)
    ]
