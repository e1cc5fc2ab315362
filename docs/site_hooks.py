"""Hooks of mkdocs: the files at the top of the repository become pages, and the reference is made
from the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from sfusion.harness.cli import found_commands
from sfusion.harness.lab.commands.check import json_schema
from sfusion.harness.lab.commands.explain import explanations, groups

ROOT = Path(__file__).parent.parent
COPIED = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "LICENSE": "LICENSE.txt",
}
GENERATED = [*COPIED.values(), "reference.md", "scenario.schema.json"]
_TITLES = {
    "parts": "Parts of a scenario file",
    "promises": "Promises",
    "kinds": "Faults",
    "models": "Server models",
    "outcomes": "Outcomes",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    for source, page in COPIED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(
            File.generated(
                config, page, content=_linked(text, "") if page.endswith(".md") else text
            )
        )
    files.append(File.generated(config, "reference.md", content=reference()))
    files.append(
        File.generated(config, "scenario.schema.json", content=json.dumps(json_schema(), indent=2))
    )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links out of docs/ to the copied pages."""
    to_docs = "../" * page.file.src_uri.count("/")
    return _linked(markdown, f"{to_docs}../", to_docs)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Give the theme's search dialog a name, and say of the Chinese pages that they are Chinese:
    browsers choose fonts and voices by that."""
    output = output.replace('role="dialog">', 'role="dialog" aria-label="Search">', 1)
    if page.file.src_uri == COPIED["README.zh-CN.md"] or page.file.src_uri.startswith("zh/"):
        return output.replace('<html lang="en"', '<html lang="zh-Hans"', 1)
    return output


def _linked(text: str, up: str, to_docs: str = "") -> str:
    """Rewrite links that leave docs/, to which ``to_docs`` leads; one to a file that the site does
    not have becomes plain text."""

    def replaced(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        if not up and path.startswith("docs/"):
            return f"[{label}]({path.removeprefix('docs/')}{hash_}{anchor})"
        if path.removeprefix(up) in COPIED:
            return f"[{label}]({to_docs}{COPIED[path.removeprefix(up)]}{hash_}{anchor})"
        return label

    out_of_docs = re.escape(up) if up else r"(?!https?:|#)"
    return re.sub(rf"(?<!`)\[([^\]\n]+)\]\(({out_of_docs}[^)\s]+)\)", replaced, text)


def reference() -> str:
    """Return the page of everything that `sfusion explain` knows."""
    lines = [
        "# Reference",
        "",
        "What `sfusion explain` prints. Editors can use the [JSON Schema](scenario.schema.json).",
        "",
    ]
    lines += [
        "## Commands",
        "",
        "`sfusion COMMAND --help` has options, exit codes and an example.",
        "",
    ]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| `sfusion {one.name}` | {one.about} |" for one in found_commands().values()] + [""]
    for group, title in _TITLES.items():
        lines += [f"## {title}", ""]
        for one in (found for name in groups()[group] for found in explanations(name)[:1]):
            lines += [f"### {one.name}", "", one.about, ""]
            if one.fields:
                lines += ["| field | meaning |", "|---|---|"]
                lines += [f"| `{key}` | {_cell(about)} |" for key, about in one.fields.items()]
                lines.append("")
    return "\n".join(lines)


def _cell(about: str) -> str:
    """Return what a field means as a cell of a table. The settings of the tool link to sections of
    the page that they were written for."""
    return about.replace("|", r"\|").replace("](#", "](tool.md#")
