"""The whole examination: healthy servers, fakes, tool configs, secrets, and bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire import Answer, Request
from sfusion.harness.errors import NotExamined
from sfusion.harness.real.doctor.context import CheckContext, Finding
from sfusion.harness.real.doctor.examination import CHECKS, Check
from sfusion.harness.real.doctor.settings import Client, settings_of_tools, settings_of_url
from sfusion_tools.errors import ConfigError
from tests.harness.real.doctor.servers import (
    QUICK,
    answering,
    breaking,
    examined,
)

SMALL = replace(QUICK, quick=False, burst=6, levels=2, sweep_sleep=0.02, packages=["json"])


async def test_a_healthy_sandbox_has_nothing_that_breaks_training() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        result = await examined(f"{sandbox.url}/run_code", SMALL, memory_limit_mb=-1)
        assert (result.not_examined, breaking(result)) == ([], [])
        assert {finding.id for finding in result.findings if finding.severity == "hurts"} == {
            "stdout-cut"
        }
        assert result.examined == [check.name for check in CHECKS]
        assert result.reached is True
        assert sandbox.ledger.snapshot()["in_flight"] == 0


async def test_a_check_that_takes_too_long_is_abandoned_and_the_others_run() -> None:
    async def never(context: CheckContext) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    async def later(context: CheckContext) -> list[Finding]:
        raise NotExamined("it did not want to")

    checks = [Check("never", never), Check("later", later)]
    result = await examined("http://127.0.0.1:1", replace(QUICK, per_check=0.05), checks=checks)
    assert result.not_examined == [
        ("never", "abandoned after 0.05 s"),
        ("later", "it did not want to"),
    ]


SECRETS = (
    "hunter2pass",
    "t0ken-of-the-gateway",
    "header-secret-9",
    "bWU6aHVudGVyMnBhc3M=",
    "proxy-pass-1",
)


async def test_secrets_echoed_by_a_server_are_masked() -> None:
    async def echo_secrets(request: Request) -> Answer:
        repeated = {
            "auth": request.headers.get("Authorization"),
            "query": request.query,
            "key": request.headers.get("X-Key"),
        }
        return Answer.json({"detail": repeated, "again": " ".join(SECRETS)}, 404)

    async with answering(echo_secrets) as url:
        proxied = {"HTTPS_PROXY": "http://x:proxy-pass-1@127.0.0.1:1"}
        address = (
            url.replace("http://", "http://me:hunter2pass@") + "/run_code?key=t0ken-of-the-gateway"
        )
        result = await examined(
            address, headers={"X-Key": "Token header-secret-9"}, environ=proxied
        )
    assert breaking(result) == ["not-found"]
    shown = f"{result.findings} {result.not_examined} {result.measured} {result.settings.label}"
    for secret in SECRETS:
        assert secret not in shown
    assert shown.count("***") >= 2


TOOLS = """
tools:
  - class_name: {class_name}
    config:
      type: native
      sandbox_fusion_url: {url}
      rate_limit: {rate_limit}
      default_timeout: 12
      memory_limit_mb: 2048
      default_language: cpp
      languages: [go]
      {more}
"""


def tools(
    tmp_path: Path, url: str, *, class_name: str, rate_limit: int = 32, more: str = "num_workers: 8"
) -> Path:
    path = tmp_path / "tools.yaml"
    path.write_text(TOOLS.format(url=url, class_name=class_name, rate_limit=rate_limit, more=more))
    return path


@pytest.mark.parametrize(
    ("class_name", "client"),
    [
        ("verl.tools.sandbox_fusion_tools.SandboxFusionTool", Client.VERL),
        ("sfusion_tools.sandbox_fusion_tools.SandboxFusionTool", Client.SFUSION),
        ("ours.tools.OurTool", Client.OTHER),
    ],
)
def test_settings_are_read_from_the_tool_config(
    tmp_path: Path, class_name: str, client: Client
) -> None:
    (settings,) = settings_of_tools(
        tools(tmp_path, "http://10.0.0.5:8080/run_code", class_name=class_name)
    )
    assert (settings.url, settings.client) == ("http://10.0.0.5:8080/run_code", client)
    config = settings.config
    assert (settings.rate_limit, config.default_timeout, config.memory_limit_mb) == (32, 12.0, 2048)
    assert (config.default_language, config.languages) == ("cpp", ["go"])
    assert settings.source == "tools.yaml, tools[0]"


def test_several_sandboxes_share_the_limit(tmp_path: Path) -> None:
    path = tools(
        tmp_path,
        "[http://a.test/run_code, http://b.test/run_code]",
        class_name="sfusion_tools.x.T",
        rate_limit=9,
    )
    assert [(one.url, one.rate_limit, one.for_all(4)) for one in settings_of_tools(path)] == [
        ("http://a.test/run_code", 5, "8 (4 for each of 2 sandboxes)"),
        ("http://b.test/run_code", 5, "8 (4 for each of 2 sandboxes)"),
    ]
    (same,) = settings_of_tools(path, url="http://c.test")
    assert (same.url, same.rate_limit, same.config.default_timeout) == ("http://c.test", 9, 12.0)


def test_tools_of_one_sandbox_with_other_headers_are_examined_each(tmp_path: Path) -> None:
    """Only the last was, so a wrong token in the first was never seen."""
    path = tmp_path / "tools.yaml"
    entry = "- {{class_name: a.T, config: {{sandbox_fusion_url: http://a.test, {}}}}}\n"
    more = ("headers: {a: one}", "headers: {a: two}", "headers: {a: two}", "default_timeout: 60")
    path.write_text("tools:\n" + "".join(map(entry.format, more)))
    found = [(one.config.headers, one.source) for one in settings_of_tools(path)]
    assert found == [
        ({"a": "one"}, "tools.yaml, tools[0]"),
        ({"a": "two"}, "tools.yaml, tools[1]"),
        ({}, "tools.yaml, tools[3]"),
    ]


def test_no_rate_limit_without_the_global_limiter(tmp_path: Path) -> None:
    path = tools(
        tmp_path, "http://a.test", class_name="verl.tools.T", more="enable_global_rate_limit: false"
    )
    assert settings_of_tools(path)[0].rate_limit is None


def test_unknown_keys_of_other_tool_classes_are_ignored(tmp_path: Path) -> None:
    (settings,) = settings_of_tools(
        tools(tmp_path, "http://a.test", class_name="ours.T", more="their_own_key: 7")
    )
    assert settings.client is Client.OTHER


@pytest.mark.parametrize(
    ("url", "class_name", "more", "complaint"),
    [
        ("sandbox_url", "verl.tools.T", "", "sandbox_fusion_url must be the address"),
        ("http://host:port/run_code", "verl.tools.T", "", "sandbox_fusion_url must be the address"),
        ("http://a.test", "sfusion_tools.x.T", "rate_limt: 3", "did you mean 'rate_limit'?"),
        ("http://a.test", "verl.tools.T", "num_workers: none", "num_workers"),
    ],
)
def test_an_invalid_config_is_refused(
    tmp_path: Path, url: str, class_name: str, more: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=r"tools\.yaml: tools") as refused:
        settings_of_tools(tools(tmp_path, url, class_name=class_name, more=more))
    assert complaint in str(refused.value)


def test_a_config_without_a_sandbox_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tools.yaml"
    path.write_text("tools: [{class_name: sfusion_tools.gsm8k_tool.Gsm8kTool, config: {}}]\n")
    with pytest.raises(ConfigError, match="no tool has a sandbox_fusion_url"):
        settings_of_tools(path)


def test_url_without_scheme_and_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be the address"):
        settings_of_url("sandbox")
