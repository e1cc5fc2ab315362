"""Findings about the address itself, and about URLs that do not end with /run_code."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.harness.real.doctor.settings import Client, Plan
from tests.harness.real.doctor.servers import (
    QUICK,
    SFUSION,
    VERL,
    breaking,
    examined,
    ids,
    only,
    scripted,
    seen,
    severity,
    until,
)

LISTENING = until("route")


@pytest.mark.parametrize(
    "url",
    [
        "https://xxx.apigateway-cn-beijing.volceapi.com/run_code",
        "https://***.apigateway-cn-beijing1.volceapi.com/run_code",
        "http://your-sandbox:8080/run_code",
        "http://sandbox.example.com/run_code",
        "http://<host>/run_code",
        "http://${SANDBOX_HOST}/run_code",
    ],
)
async def test_a_placeholder_is_reported_and_nothing_is_sent(url: str) -> None:
    result = await examined(url)
    assert ids(result) == {"placeholder-url"}
    assert breaking(result) == ["placeholder-url"]
    assert result.examined == ["address"]
    assert {why for _, why in result.not_examined} == {
        "the URL is a placeholder, so nothing was sent"
    }
    assert result.reached is None


async def test_a_real_host_name_is_not_a_placeholder() -> None:
    result = await examined("http://sandbox.internal.test:8080/run_code", checks=only("address"))
    assert ids(result) == set()


@pytest.mark.parametrize(
    ("client", "expected"),
    [(VERL, "breaks"), (Client.OTHER, "hurts"), (SFUSION, "note"), (Client.UNKNOWN, "note")],
)
async def test_the_severity_of_a_missing_run_code_depends_on_the_client(
    client: Client, expected: str
) -> None:
    async with scripted() as sandbox:
        result = await examined(sandbox.url, checks=LISTENING, client=client)
        assert ids(result) == {"missing-run-code"}
        assert severity(result, "missing-run-code") == expected
        assert f"POST {sandbox.url} returns 405" in seen(result, "missing-run-code")
        well = await examined(f"{sandbox.url}/run_code", checks=LISTENING, client=client)
        assert ids(well) == set()


async def test_a_doubled_run_code_is_reported_and_the_other_checks_use_the_intended_url() -> None:
    async with scripted() as sandbox:
        result = await examined(f"{sandbox.url}/run_code/run_code", checks=LISTENING)
        assert breaking(result) == ["doubled-run-code"]
        (found,) = result.findings
        assert found.change == f"use {sandbox.url}/run_code"
        assert "run_code" in result.examined


async def test_the_url_of_the_notebook_route_breaks_training() -> None:
    async with scripted() as sandbox:
        result = await examined(f"{sandbox.url}/run_jupyter", checks=LISTENING, client=VERL)
        assert breaking(result) == ["notebook-url"]
        assert "returns 422" in seen(result, "notebook-url")


async def test_an_unspecified_address_as_destination_hurts() -> None:
    async with scripted() as sandbox:
        result = await examined(f"http://0.0.0.0:{sandbox.port}/run_code", checks=LISTENING)
        assert ids(result) == {"unspecified-address"}
        assert severity(result, "unspecified-address") == "hurts"


def container(tmp_path: Path, kind: str) -> tuple[Path, dict[str, str]]:
    """The root and the environment inside a container of this kind."""
    environ: dict[str, str] = {}
    match kind:
        case "docker":
            (tmp_path / ".dockerenv").touch()
        case "podman":
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / ".containerenv").touch()
        case "kubernetes":
            environ["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
        case "cgroup":
            (tmp_path / "proc" / "1").mkdir(parents=True)
            (tmp_path / "proc" / "1" / "cgroup").write_text(
                "12:pids:/kubepods/burstable/pod1/abc\n"
            )
    return tmp_path, environ


@pytest.mark.parametrize("kind", ["docker", "podman", "kubernetes", "cgroup"])
async def test_loopback_without_a_server_inside_a_container_breaks_training(
    tmp_path: Path, kind: str
) -> None:
    root, environ = container(tmp_path, kind)
    async with scripted() as sandbox:
        url = f"{sandbox.url}/run_code"
        inside = await examined(url, root=root, environ=environ, checks=LISTENING)
        assert severity(inside, "loopback-in-container") == "note", (
            "it answers, so it runs in the same container"
        )
    result = await examined(url, root=root, environ=environ)
    assert breaking(result) == ["loopback-in-container"]
    assert "Connection refused" in seen(result, "loopback-in-container")
    assert result.reached is False


async def test_a_plain_machine_is_not_taken_for_a_container(tmp_path: Path) -> None:
    (tmp_path / "proc" / "1").mkdir(parents=True)
    (tmp_path / "proc" / "1" / "cgroup").write_text("0::/init.scope\n")
    async with scripted() as sandbox:
        result = await examined(f"{sandbox.url}/run_code", root=tmp_path, checks=LISTENING)
    assert ids(result) == set()


async def test_from_container_makes_loopback_a_finding_even_if_it_answers_here() -> None:
    async with scripted() as sandbox:
        plan = Plan(quick=True, from_container=True)
        result = await examined(f"{sandbox.url}/run_code", plan, checks=LISTENING)
        assert breaking(result) == ["loopback-in-container"]
        assert ids(await examined(f"{sandbox.url}/run_code", QUICK, checks=LISTENING)) == set()
