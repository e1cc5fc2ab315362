"""``read_target``: what users type for ``--sandbox`` is parsed, or refused with a hint."""

from __future__ import annotations

import re

import pytest

from sfusion.harness.real.targets import (
    DEFAULT_IMAGE,
    BadTarget,
    DockerTarget,
    FakeTarget,
    UrlTarget,
    read_target,
)
from sfusion_tools.sandbox.endpoints import redact

DIGEST = "sha256:" + "0a" * 32


def test_fake_is_a_target() -> None:
    assert read_target(" fake ") == FakeTarget()
    assert str(FakeTarget()) == "fake"


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/run_code", "http://127.0.0.1:8080"),
        ("https://sandbox.corp/team/run_code/", "https://sandbox.corp/team"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_an_address_is_normalised(typed: str, url: str) -> None:
    assert read_target(typed) == UrlTarget(url)
    assert str(read_target(typed)) == redact(url)


def test_a_password_is_kept_but_never_shown() -> None:
    target = read_target("https://me:hunter2@sandbox.corp/t0ken/run_code?key=s3cret")
    assert isinstance(target, UrlTarget)
    assert target.url == "https://me:hunter2@sandbox.corp/t0ken?key=s3cret"
    assert str(target).startswith("https://sandbox.corp/***-")
    assert not {"hunter2", "t0ken", "s3cret"} & set(re.findall(r"\w+", f"{target} {target!r}"))


@pytest.mark.parametrize(
    "image",
    [
        "sandbox",
        "sandbox:2026.07-rc_1",
        "volcengine/sandbox-fusion:server-20250609",
        "registry.corp/a/b__c/d-e:v1",
        "registry.corp:5000/sandbox",
        "registry:5000/sandbox:v1",
        "localhost/sandbox:v1",
        "[::1]:5000/sandbox:v1",
        f"sandbox@{DIGEST}",
        f"registry.corp:5000/a/sandbox:v1@{DIGEST}",
        DIGEST,
    ],
)
def test_image_names_are_accepted(image: str) -> None:
    assert read_target(f"docker:{image}") == DockerTarget(image)
    assert str(read_target(f"docker:{image}")) in (f"docker:{image}", "docker")


def test_docker_without_an_image_means_the_published_one() -> None:
    assert read_target("docker") == DockerTarget(DEFAULT_IMAGE)
    assert str(read_target("docker")) == "docker"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("", "no sandbox given"),
        ("dokcer", "did you mean 'docker'?"),
        ("docker:", "lacks an image"),
        ("docker:Sandbox", "image names are in lower case"),
        ("docker:a b", "'a b' is not the name of an image"),
        ("docker:../etc", "not the name of an image"),
        ("docker:--privileged", "not the name of an image"),
        ("docker:sandbox@sha256:12", "not the name of an image"),
        ("localhost:8080/run_code", "as in http://localhost:8080/run_code"),
        ("127.0.0.1:8080", "as in http://127.0.0.1:8080"),
        ("ftp://127.0.0.1", "not the address of a sandbox"),
        ("http://", "not the address of a sandbox"),
        ("http://127.0.0.1:99999", "not the address of a sandbox"),
        ("http://my box:8080", "not the address of a sandbox"),
        (
            "https://xxx.apigateway-cn-beijing.volceapi.com/run_code",
            "a placeholder that was never filled in",
        ),
        ("http://<host>:8080", "a placeholder"),
    ],
)
def test_invalid_targets_are_refused_with_a_hint(typed: str, hint: str) -> None:
    with pytest.raises(BadTarget) as refused:
        read_target(typed)
    assert hint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "typed", ["me:hunter2@sandbox.corp:80", "ftp://me:hunter2@corp", "https://me:hunter2@xxx.corp"]
)
def test_errors_show_no_password(typed: str) -> None:
    with pytest.raises(BadTarget) as refused:
        read_target(typed)
    assert "hunter2" not in str(refused.value)
