"""The compose file and the manifest for Kubernetes start commands that exist, on the ports that are
probed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sfusion.fakes.faults import read_rules
from sfusion.fakes.wire.access import PINGS
from sfusion.harness.cli import load
from tests import ROOT
from tests.docs.blocks import read_page

SERVICES: dict[str, Any] = yaml.safe_load(
    (ROOT / "docker/compose.yaml").read_text(encoding="utf-8")
)["services"]
MANIFEST = next(
    one.text
    for one in read_page(ROOT / "docs/kubernetes.md", ROOT).blocks
    if one.language == "yaml"
)
DEPLOYMENT, FAULTS, SERVICE = yaml.safe_load_all(MANIFEST)


def options(words: list[str]) -> dict[str, Any]:
    """What a command reads from its words; they are refused here as they would be there."""
    name = " ".join(words[: 2 if words[0] == "serve" else 1])
    found: dict[str, Any] = load(name).make_context(name, words[len(name.split()) :]).params
    return found


@pytest.mark.parametrize("name", ["sandbox", "sglang", "proxy"])
def test_a_service_of_the_compose_file_listens_where_it_is_published_and_probed(name: str) -> None:
    service = SERVICES[name]
    port = options(service["command"].split())["port"]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    health = service.get("environment", {}).get("HEALTH", "http://127.0.0.1:8080/v1/ping")
    assert health in [f"http://127.0.0.1:{port}{path}" for path in PINGS]
    if name == "proxy":
        assert (
            options(service["command"].split())["url"]
            == f"http://sandbox:{options(_words('sandbox'))['port']}"
        )


def _words(name: str) -> list[str]:
    words: list[str] = SERVICES[name]["command"].split()
    return words


def test_the_manifest_starts_a_command_that_exists_on_the_port_of_its_service() -> None:
    spec = DEPLOYMENT["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    read = options(container["args"])
    port = read["port"]
    assert (read["host"], container["ports"]) == ("0.0.0.0", [{"containerPort": port}])
    probe = container["readinessProbe"]["httpGet"]
    assert probe["port"] == port
    assert probe["path"] in PINGS
    assert SERVICE["spec"]["ports"] == [{"port": port, "targetPort": port}]
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert labels == SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"]
    assert (
        f"http://{SERVICE['metadata']['name']}:{port}/run_code"
        in (ROOT / "docs/kubernetes.md").read_text()
    )
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert (mount["name"], volume["configMap"]["name"]) == (
        volume["name"],
        FAULTS["metadata"]["name"],
    )
    (file,) = FAULTS["data"]
    assert str(read["faults"]) == f"{mount['mountPath']}/{file}"
    assert len(read_rules(yaml.safe_load(FAULTS["data"][file]))) == 1


def test_the_image_runs_as_the_same_user_and_probes_the_same_path_by_default() -> None:
    text = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
    assert "\nUSER 10001\n" in text  # a number, or Kubernetes cannot see that it is not root
    assert "HEALTH=http://127.0.0.1:8080/v1/ping" in text
    default = yaml.safe_load(text[text.rindex("\nCMD ") + 5 :])
    assert options(default)["port"] == 8080
