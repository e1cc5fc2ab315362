"""A hook of the build: README.md as the page of a package index, where links to files need a whole
address.

``SFUSION_REPOSITORY``, such as ``https://github.com/OWNER/sfusion``, is where they lead, at the tag
of the version. It also becomes the project's links. Without it, as in a build from a checkout, such
a link is its label.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("SFUSION_REPOSITORY", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": page(text, repository, metadata["version"]),
        }
        at = f"{repository}/blob/v{metadata['version']}"
        links = {
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{at}/CHANGELOG.md",
            "Documentation": f"{at}/docs/start-here.md",
        }
        metadata["urls"] = links if repository else {}


def page(text: str, repository: str, version: str) -> str:
    """Give links to files of the repository whole addresses; a picture without an address is left
    out."""

    def replaced(found: re.Match[str]) -> str:
        picture, label, target = found[1], found[2], found[3]
        if not repository:
            return "" if picture else label
        return (
            f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"
        )

    return re.sub(r"(!?)\[([^\]\n]+)\]\((?!https?:|#)([^)\s]+)\)", replaced, text)
