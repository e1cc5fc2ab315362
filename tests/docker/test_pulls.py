"""A missing image is pulled with progress; errors of the registry are shown on one line."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sfusion.harness.real.targets import DockerTarget, MissingTarget, open_targets
from sfusion.harness.real.targets.docker_engine import ContainerEngine
from tests.docker.registry import Registry, registry
from tests.ports import closed_port

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]

BYTES = random.Random(0).randbytes(1_280_000)
"""Data that cannot be compressed."""


@pytest.fixture
def served(engine: ContainerEngine) -> Iterator[Registry]:
    with registry() as running:
        yield running
    for image in engine.client.api.images():
        for tag in image["RepoTags"] or ():
            if tag.startswith(running.address):
                engine.client.images.remove(tag)


def refusal(image: str) -> tuple[str, list[str]]:
    lines: list[str] = []
    with (
        pytest.raises(MissingTarget) as refused,
        open_targets([DockerTarget(image)], say=lines.append),
    ):
        pass
    return str(refused.value), lines


def test_an_image_is_pulled_once_with_progress(engine: ContainerEngine, served: Registry) -> None:
    served.image("v1", [BYTES, BYTES[::-1]], engine.architecture)
    name = f"{served.address}/team/sandbox:v1"
    lines: list[str] = []
    assert engine.image(name, lines.append).attrs["Architecture"] == engine.architecture
    assert lines[0] == f"pulling {name}: the engine does not have this image yet"
    assert lines[1].startswith(f"pulling {name}: 0 of ")
    assert lines[-1] == f"pulled {name} (2 MiB)"
    assert served.pulls > 0
    served.pulls, lines[:] = 0, []
    engine.image(name, lines.append)
    assert (served.pulls, lines) == (0, []), "an image that the engine has is not requested again"


def test_a_name_without_a_tag_pulls_only_latest(engine: ContainerEngine, served: Registry) -> None:
    served.image("latest", [b"new"], engine.architecture)
    served.image("other", [b"old"], engine.architecture)
    engine.image(f"{served.address}/sandbox", lambda _: None)
    assert [image.tags for image in engine.client.images.list(f"{served.address}/sandbox")] == [
        [f"{served.address}/sandbox:latest"]
    ]


def test_a_digest_can_replace_the_tag(engine: ContainerEngine, served: Registry) -> None:
    digest = served.image("v1", [b"pinned"], engine.architecture)
    for name in (f"{served.address}/sandbox@{digest}", f"{served.address}/sandbox:v1@{digest}"):
        image = engine.image(name, lambda _: None)
        assert f"{served.address}/sandbox@{digest}" in image.attrs["RepoDigests"]
        engine.client.images.remove(image.id, force=True)


def test_an_unknown_image_is_an_error(served: Registry) -> None:
    error, lines = refusal(f"{served.address}/sandbox:v9")
    assert error.startswith(
        f"there is no image {served.address}/sandbox:v9 on the engine, and it could not be pulled: "
    )
    assert "manifest for" in error
    assert "docker load" in error
    assert "\n" not in error
    assert lines == [
        f"pulling {served.address}/sandbox:v9: the engine does not have this image yet"
    ]


def test_the_message_of_a_registry_that_denies_access_is_shown(served: Registry) -> None:
    served.refuse("you may not have this")
    assert "you may not have this" in refusal(f"{served.address}/sandbox:v1")[0]


def test_a_corrupt_layer_is_an_error(engine: ContainerEngine, served: Registry) -> None:
    served.image("v1", [BYTES], engine.architecture)
    served.spoil_layers()
    error, lines = refusal(f"{served.address}/sandbox:v1")
    assert "could not be pulled: " in error
    assert "sha256:" in error
    assert lines[1].startswith(f"pulling {served.address}/sandbox:v1: 0 of 1 layers")


def test_an_unreachable_registry_is_an_error(engine: ContainerEngine) -> None:
    assert "connection refused" in refusal(f"127.0.0.1:{closed_port()}/sandbox:v1")[0]


def test_an_image_for_another_architecture_only_is_an_error(
    engine: ContainerEngine, served: Registry
) -> None:
    served.image("v1", [b"x"], "s390x")
    error, _ = refusal(f"{served.address}/sandbox:v1")
    assert error.startswith(
        f"{served.address}/sandbox:v1 has no image for this engine's architecture"
    )
    assert f"use an image built for {engine.architecture}" in error
