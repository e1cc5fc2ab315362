"""The limits of containers can be set in the environment, and invalid values are errors."""

from __future__ import annotations

import pytest

from sfusion.harness.real.targets import BadTarget
from sfusion.harness.real.targets.docker_engine import DockerOptions, size


def test_unset_variables_keep_the_default() -> None:
    assert DockerOptions.from_environ({"SFUSION_DOCKER_MEMORY": " "}) == DockerOptions()
    assert DockerOptions() == DockerOptions(
        memory=4 * 2**30, cpus=4.0, pids=4096, ready=60.0, port=0
    )


def test_every_option_can_be_set() -> None:
    environ = {"MEMORY": "1.5g", "CPUS": "0.5", "PIDS": "64", "READY": "120", "PORT": "8080"}
    assert DockerOptions.from_environ(
        {f"SFUSION_DOCKER_{name}": text for name, text in environ.items()}
    ) == (DockerOptions(memory=3 * 2**29, cpus=0.5, pids=64, ready=120.0, port=8080))


@pytest.mark.parametrize(
    ("text", "count"), [("512m", 2**29), ("512 MiB", 2**29), ("8388608", 2**23), ("1T", 2**40)]
)
def test_sizes_are_parsed(text: str, count: int) -> None:
    assert DockerOptions.from_environ({"SFUSION_DOCKER_MEMORY": text}).memory == count


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("MEMORY", "lots", "an amount of memory"),
        ("MEMORY", "1m", "at least 6m"),
        ("CPUS", "0", "a number above 0"),
        ("CPUS", "nan", "a number above 0"),
        ("CPUS", "two", "a number above 0"),
        ("PIDS", "-1", "a whole number above 0"),
        ("READY", "inf", "a number above 0"),
        ("PORT", "65536", "a port from 1 to 65535"),
    ],
)
def test_an_invalid_value_is_an_error_with_its_name(name: str, text: str, wanted: str) -> None:
    with pytest.raises(
        BadTarget, match=f"^SFUSION_DOCKER_{name}='{text}' in the environment: expected .*{wanted}"
    ):
        DockerOptions.from_environ({f"SFUSION_DOCKER_{name}": text})


def test_sizes_are_formatted() -> None:
    assert [size(count) for count in (0, 2**10, 5 * 2**20, 4 * 2**30, 2.14 * 2**30)] == [
        "0 bytes",
        "1 KiB",
        "5 MiB",
        "4 GiB",
        "2.1 GiB",
    ]
