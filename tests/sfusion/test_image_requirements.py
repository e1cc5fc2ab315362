"""The sandbox image installs what the code in it imports."""

from __future__ import annotations

import re
import tomllib

from tests import ROOT

MODULES = {"pyyaml": "yaml"}
"""What a package is imported as, where that is not its name."""
LATER = {"jsonschema"}
"""Only for the fake engine, which the image does not run."""


def test_the_image_has_every_core_package_that_its_code_imports() -> None:
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {MODULES.get(name, name): name for name in (re.split("[>=]", one)[0] for one in core)}
    sources = [
        file.read_text()
        for top in ("fakes", "sfusion_tools")
        for file in (ROOT / top).rglob("*.py")
    ]
    used = {
        name
        for module, name in names.items()
        for text in sources
        if re.search(rf"(?m)^(import|from) {module}\b", text)
    }
    assert "aiohttp" in used
    found = re.search('requirements="(.*)"', (ROOT / "docker/sandbox-image/build").read_text())
    assert found is not None
    assert {re.split("[>=]", one)[0] for one in found[1].split()} == used - LATER
