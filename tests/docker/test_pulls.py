"""An image that is not there is pulled with progress; what a registry says against it is told in one line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from sfusion.harness.targets import DockerTarget, MissingTarget, open_targets
from sfusion.harness.targets.engine import ContainerEngine
from tests.docker.registry import Registry, registry

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]

BYTES = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(40_000))
"""Something that does not shrink."""


@pytest.fixture
def shop(engine: ContainerEngine) -> Iterator[Registry]:
    with registry() as running:
        yield running
    for image in engine.client.images.list():
        for tag in image.tags:
            if tag.startswith(running.address):
                engine.client.images.remove(tag)


def refusal(image: str) -> tuple[str, list[str]]:
    said: list[str] = []
    with pytest.raises(MissingTarget) as refused, open_targets([DockerTarget(image)], say=said.append):
        pass
    return str(refused.value), said


def test_pulled_with_progress_and_only_once(engine: ContainerEngine, shop: Registry) -> None:
    shop.image("v1", [BYTES, BYTES[::-1]], engine.architecture)
    name = f"{shop.address}/team/sandbox:v1"
    said: list[str] = []
    assert engine.image(name, said.append).attrs["Architecture"] == engine.architecture
    assert said[0] == f"pulling {name}: the engine has no such image yet"
    assert said[1].startswith(f"pulling {name}: 0 of ")
    assert said[-1] == f"pulled {name} (2 MiB)"
    assert shop.pulls > 0
    shop.pulls, said[:] = 0, []
    engine.image(name, said.append)
    assert (shop.pulls, said) == (0, []), "an image that is there is not asked for again"


def test_a_name_without_a_tag_is_one_image(engine: ContainerEngine, shop: Registry) -> None:
    shop.image("latest", [b"new"], engine.architecture)
    shop.image("other", [b"old"], engine.architecture)
    engine.image(f"{shop.address}/sandbox", lambda _: None)
    assert [image.tags for image in engine.client.images.list(f"{shop.address}/sandbox")] == [
        [f"{shop.address}/sandbox:latest"]
    ]


def test_a_digest_is_as_good_as_a_tag(engine: ContainerEngine, shop: Registry) -> None:
    digest = shop.image("v1", [b"pinned"], engine.architecture)
    for name in (f"{shop.address}/sandbox@{digest}", f"{shop.address}/sandbox:v1@{digest}"):
        image = engine.image(name, lambda _: None)
        assert f"{shop.address}/sandbox@{digest}" in image.attrs["RepoDigests"]
        engine.client.images.remove(image.id, force=True)


def test_no_such_image(shop: Registry) -> None:
    told, said = refusal(f"{shop.address}/sandbox:v9")
    assert told.startswith(f"there is no image {shop.address}/sandbox:v9 on the engine, and it could not be pulled: ")
    assert "manifest for" in told
    assert "docker load" in told
    assert "\n" not in told
    assert said == [f"pulling {shop.address}/sandbox:v9: the engine has no such image yet"]


def test_a_registry_that_refuses(shop: Registry) -> None:
    shop.refuse("you may not have this")
    assert "you may not have this" in refusal(f"{shop.address}/sandbox:v1")[0]


def test_a_pull_that_fails_on_its_way(engine: ContainerEngine, shop: Registry) -> None:
    shop.image("v1", [BYTES], engine.architecture)
    shop.spoil_layers()
    told, said = refusal(f"{shop.address}/sandbox:v1")
    assert "could not be pulled: " in told
    assert "sha256:" in told
    assert said[1].startswith(f"pulling {shop.address}/sandbox:v1: 0 of 1 layers")


def test_a_registry_that_is_not_there(shop: Registry) -> None:
    with registry() as gone:
        address = gone.address
    assert "connection refused" in refusal(f"{address}/sandbox:v1")[0]


def test_only_for_another_architecture(engine: ContainerEngine, shop: Registry) -> None:
    shop.image("v1", [b"x"], "s390x")
    told, _ = refusal(f"{shop.address}/sandbox:v1")
    assert told.startswith(f"{shop.address}/sandbox:v1 has no image for this engine's architecture")
    assert f"take an image made for {engine.architecture}" in told
