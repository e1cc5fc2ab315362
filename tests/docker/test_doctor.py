"""The doctor with a container: started, examined, removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]


def test_a_container_is_examined_with_the_settings_of_a_config(
    sandbox_image: str, tmp_path: Path
) -> None:
    config = tmp_path / "tools.yaml"
    config.write_text(
        "tools: [{class_name: verl.tools.sandbox_fusion_tools.SandboxFusionTool, config: "
        "{sandbox_fusion_url: 'https://xxx.apigateway.volceapi.com/run_code', "
        "default_language: lua}}]\n"
    )
    options = [f"docker:{sandbox_image}", "--quick", "--packages", "json"]
    healthy = CliRunner().invoke(app, ["doctor", *options])
    assert healthy.exit_code == 0, healthy.output
    assert "nothing found that breaks training" in healthy.stdout
    assert "loopback-in-container" not in healthy.stdout, "its address does not come from a config"
    lacking = CliRunner().invoke(app, ["doctor", *options, "--tools", str(config)])
    assert lacking.exit_code == 1, lacking.output
    assert "breaks: missing-language" in lacking.stdout
