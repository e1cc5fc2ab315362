"""Whatever prevents a container from starting, the error names the cause and what to do."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sfusion.harness.real.targets import BadTarget, DockerTarget, MissingTarget, open_targets
from sfusion.harness.real.targets.docker_engine import ContainerEngine
from tests import ROOT
from tests.docker.images import REPOSITORY, elf_for, image_archive

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker"), pytest.mark.timeout(400)]

FOREIGN = elf_for(0xBEEF)
"""A program for a processor that this machine does not have and no emulator supports."""


def refusal(image: str = "sandbox", say: Callable[[str], None] = lambda _: None) -> str:
    with pytest.raises(MissingTarget) as refused, open_targets([DockerTarget(image)], say=say):
        pass
    assert refused.value.exit_code == 3
    return str(refused.value)


# -- the engine; these tests need none --


def test_missing_engine_at_docker_host_is_reported_with_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    error = refusal()
    assert error.startswith(
        f"the container engine at unix://{tmp_path}/docker.sock (DOCKER_HOST) does not "
        "answer: there is"
    )
    assert "start Docker" in error


def test_stopped_engine_is_reported_with_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(tmp_path / "docker.sock"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert "does not answer: connection refused" in refusal()


def test_docker_host_that_is_not_an_engine_is_reported_with_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        from threading import Thread

        def hang_up() -> None:
            for _ in range(2):
                other.accept()[0].close()

        thread = Thread(target=hang_up, daemon=True)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{other.getsockname()[1]}")
        error = refusal()
    assert "is DOCKER_HOST right, and is Docker running?" in error
    assert "\n" not in error


def test_missing_engine_at_the_default_address_is_reported_with_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(
        "sfusion.harness.real.targets.docker_engine.DEFAULT_ADDRESS", f"unix://{tmp_path}/none.sock"
    )
    assert "(the default, as DOCKER_HOST is not set) does not answer" in refusal()


def test_missing_permission_is_reported_with_the_group_to_join(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as forbidden:
        forbidden.bind(str(path))
        forbidden.listen()
        path.chmod(0)
        # Root may use any socket, so switch to another user first, after importing everything.
        script = (
            "import os, docker, sfusion.harness.real.targets.container\n"
            "from sfusion.harness.real.targets import *\n"
            "if os.getuid() == 0: os.setegid(65534); os.seteuid(65534)\n"
            "try:\n    open_targets([DockerTarget()]).__enter__()\n"
            "except MissingTarget as error: print(error)\n"
        )
        environ = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
        error = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True
        )
    assert (
        "may not be used by this user: permission denied; add the user to the group" in error.stdout
    ), error.stderr


@pytest.mark.parametrize("address", ["tcp://10.1.2.3:2376", "ssh://me:hunter2@builder"])
def test_engine_on_another_machine_is_refused_without_showing_the_password(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    error = refusal()
    assert "is on another machine" in error
    assert "give its address instead" in error
    assert "hunter2" not in error


def test_missing_docker_sdk_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    assert "pip install 'sfusion[docker]'" in refusal()


def test_a_command_without_the_sdk_exits_with_3_and_one_line() -> None:
    code = """
import sys
sys.modules["docker"] = None
from sfusion.harness.cli import app
app(["doctor", "docker"])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 3
    assert ran.stderr.count("\n") == 1
    assert "pip install 'sfusion[docker]'" in ran.stderr


def test_invalid_options_are_reported_before_the_engine_is_contacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SFUSION_DOCKER_CPUS", "many")
    with pytest.raises(BadTarget, match="SFUSION_DOCKER_CPUS"), open_targets([DockerTarget()]):
        pass


# -- the image --


@pytest.fixture
def load(engine: ContainerEngine) -> Iterator[Callable[..., str]]:
    """Loads an image with one file: ``load(name, program, command, architecture)``."""
    loaded: list[str] = []

    def bring(name: str, program: bytes, command: list[str], architecture: str) -> str:
        loaded.append(f"{REPOSITORY}:{name}")
        engine.client.images.load(
            image_archive(loaded[-1], {"sandbox": program}, command, architecture)
        )
        return loaded[-1]

    yield bring
    for image in loaded:
        engine.client.images.remove(image, force=True)


def test_image_for_another_architecture_is_reported_with_exit_code_3(
    engine: ContainerEngine, load: Callable[..., str]
) -> None:
    name = "s390x" if engine.architecture != "s390x" else "amd64"
    image, lines = load("foreign", FOREIGN, ["/sandbox"], name), list[str]()
    error = refusal(image, lines.append)
    ours = engine.architecture
    assert error.startswith(
        f"{image} is for another architecture ({name}) than this engine's ({ours}): exec "
        "format error"
    )
    assert f"use an image built for {ours}" in error
    assert lines[0] == (
        f"{image} is built for {name} and the engine runs {ours}: it only starts with an emulator"
    )


def test_image_with_a_wrong_architecture_label_is_reported_with_exit_code_3(
    engine: ContainerEngine, load: Callable[..., str]
) -> None:
    image = load("liar", FOREIGN, ["/sandbox"], engine.architecture)
    assert refusal(image).startswith(f"{image} is for another architecture than this engine's")


def test_image_without_a_command_is_reported_with_exit_code_3(
    load: Callable[..., str], engine: ContainerEngine
) -> None:
    image = load("empty", b"", [], engine.architecture)
    assert re.match(f"no container of {image} could be created .*: .*[Nn]o command", refusal(image))


def test_image_whose_command_does_not_exist_is_reported_with_exit_code_3(
    load: Callable[..., str], engine: ContainerEngine
) -> None:
    image = load("wrong", b"", ["/server"], engine.architecture)
    assert re.match(
        f"the container of {image} could not be started .*/server.*no such file", refusal(image)
    )


# -- the container --


def test_a_container_that_exits_at_once_is_an_error_with_its_log(
    make_image: Callable[..., str],
) -> None:
    code = (
        "[print('line', n) for n in range(99)]; print('\x1b[31mno module named sandbox' "
        "+ 'x' * 999); exit(1)"
    )
    image = make_image("dies", ["python3", "-c", code])
    error = refusal(image)
    assert error.startswith(
        f"the container of {image} exited before it answered: exit code 1; try it alone "
        "with: docker run"
    )
    assert "\nThe last lines of its log:\n  | line 80\n" in error
    assert "no module named sandbox" in error
    assert "\x1b" not in error
    assert max(map(len, error.splitlines()[2:])) <= 304
    assert "line 79" not in error


def test_container_that_never_answers_is_reported_with_exit_code_3(
    make_image: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFUSION_DOCKER_READY", "0.3")
    image = make_image("silent", ["sleep", "1000"])
    error = refusal(image)
    assert error.startswith(
        f"the container of {image} runs, but did not answer /v1/ping within 0.3 s; is it a Sandbox"
    )
    assert error.endswith("\nIts log is empty.")


def test_container_killed_at_its_memory_limit_is_reported_with_the_limit(
    make_image: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFUSION_DOCKER_MEMORY", "24m")
    error = refusal(make_image("greedy", ["python3", "-c", "print(len(bytearray(10**9)))"]))
    assert "exited before it answered: killed" in error
    assert "at its memory limit of 24 MiB; raise it with SFUSION_DOCKER_MEMORY" in error


def test_container_killed_without_a_known_cause_is_reported_with_the_likely_one(
    make_image: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine can report the exit before it hears of the memory limit; then only the exit code
    tells."""
    monkeypatch.setenv("SFUSION_DOCKER_MEMORY", "64m")
    error = refusal(make_image("killed", ["python3", "-c", "exit(137)"]))
    assert (
        "killed (exit code 137), most likely at its memory limit of 64 MiB; raise it with SFUSION_"
        in error
    )


def test_port_in_use_is_reported_and_no_container_is_left(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("SFUSION_DOCKER_PORT", str(port))
        error = refusal(sandbox_image)
    assert error.startswith(f"port {port} of 127.0.0.1 is already in use")
    assert "unset SFUSION_DOCKER_PORT" in error


def test_two_containers_cannot_share_a_port(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("SFUSION_DOCKER_PORT", str(port))
    targets = [DockerTarget(sandbox_image)] * 2
    with (
        pytest.raises(MissingTarget, match=f"port {port} of 127.0.0.1 is already in use"),
        open_targets(targets),
    ):
        pass
