"""Containers answer on loopback only, within their limits, and can be killed and revived."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.real.targets import DockerTarget, Target, UrlTarget, open_targets
from sfusion.harness.real.targets.container import KEPT_CAPABILITIES, Container
from sfusion.harness.real.targets.docker_engine import ContainerEngine
from sfusion.harness.real.targets.owner import LABEL, Owner
from sfusion.harness.real.targets.target import is_ready, why_unreachable
from tests.docker.calls import run_code

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]


def test_a_container_runs_programs(container: Container) -> None:
    assert run_code(container.url, "print(sum(range(10)))") == "45\n"
    assert run_code(container.url, "cat /proc/1/cmdline", "bash").startswith(
        "python3\0/opt/sandbox/server.py"
    )


def test_the_port_is_published_on_loopback_only(
    engine: ContainerEngine, container: Container
) -> None:
    inspected = engine.client.api.inspect_container(container.container_name)
    (published,) = inspected["NetworkSettings"]["Ports"]["8080/tcp"]
    assert published["HostIp"] == "127.0.0.1"
    port = int(published["HostPort"])
    assert container.url == f"http://127.0.0.1:{port}"
    for address in _other_addresses():
        with socket.socket() as from_outside:
            from_outside.settimeout(5)
            assert from_outside.connect_ex((address, port)) != 0, address


def _other_addresses() -> set[str]:
    """Addresses of this machine that others could use; finding them sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return set()  # a machine without a network has only loopback
        return {str(probe.getsockname()[0])} - {"127.0.0.1"}


def test_without_the_host_variable_the_image_is_unreachable(plain: Callable[..., Any]) -> None:
    bare = plain(ports={"8080/tcp": ("127.0.0.1", None)})
    with subprocess.Popen(
        ["docker", "logs", "--follow", bare.name], stdout=subprocess.PIPE, text=True
    ) as log:
        assert log.stdout is not None
        assert log.stdout.readline() == "listening on 127.0.0.1:8080\n"
        log.kill()
    bare.reload()
    port = bare.attrs["NetworkSettings"]["Ports"]["8080/tcp"][0]["HostPort"]
    assert not is_ready(f"http://127.0.0.1:{port}", 2.0)


def test_resource_limits_are_set(engine: ContainerEngine, container: Container) -> None:
    limits = engine.client.api.inspect_container(container.container_name)["HostConfig"]
    assert limits["Memory"] == limits["MemorySwap"] == 4 * 2**30
    assert limits["NanoCpus"] == int(min(4, engine.cpus) * 1e9)
    assert limits["PidsLimit"] == 4096
    assert not limits["Privileged"]
    assert limits["RestartPolicy"]["Name"] in ("", "no")


def test_privileges_are_dropped(container: Container) -> None:
    status = run_code(container.url, "print(open('/proc/1/status').read())")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    numbers = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
    assert int(fields["CapBnd"], 16) == sum(1 << numbers[name] for name in KEPT_CAPABILITIES)


def test_labels_name_the_owner_and_the_image(
    engine: ContainerEngine, container: Container, sandbox_image: str
) -> None:
    labels = engine.client.api.inspect_container(container.container_name)["Config"]["Labels"]
    assert Owner.read(labels[LABEL]) == Owner.here()
    assert labels["sfusion.image"] == sandbox_image


def test_a_container_can_be_killed_and_revived(sandbox_image: str) -> None:
    with open_targets([DockerTarget(sandbox_image)]) as (sandbox,):
        assert sandbox.killable
        before = run_code(sandbox.url, "cat /etc/hostname", "bash")
        sandbox.kill()
        assert why_unreachable(sandbox.url, 2.0) is not None
        sandbox.kill()  # killing it again does nothing
        sandbox.revive()
        assert run_code(sandbox.url, "cat /etc/hostname", "bash") == before, (
            "it is the same container"
        )


def test_containers_and_addresses_can_be_mixed(sandbox_image: str) -> None:
    lines: list[str] = []
    with FakeSandbox() as fake:
        targets: list[Target] = [DockerTarget(sandbox_image), UrlTarget(fake.url)]
        with open_targets(targets, at_least=3, say=lines.append) as opened:
            assert [one.name for one in opened] == ["docker-1", fake.url, "docker-2"]
            assert len({one.url for one in opened}) == 3
            opened[0].kill()
            assert run_code(opened[2].url, "print(2)") == "2\n"
    assert [line.partition(":")[0] for line in lines] == [
        "docker-1",
        "docker-2",
        "docker-1",
        "docker-2",
    ]
    assert lines[2] == f"docker-1: ready at {lines[2].rpartition(' ')[2]}"
    assert "(at most 4 GiB, " in lines[0]
