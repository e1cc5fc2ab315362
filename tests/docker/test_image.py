"""The image of the fakes and the proxy, with the commands of the compose file;
docker/image-for-tests builds it."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from sfusion.harness.real.targets.docker_engine import ContainerEngine
from tests import ROOT

SERVICES: dict[str, Any] = yaml.safe_load(
    (ROOT / "docker/compose.yaml").read_text(encoding="utf-8")
)["services"]
Start = Callable[..., Any]


@pytest.fixture(scope="module")
def image(engine: ContainerEngine) -> str:
    from docker.errors import ImageNotFound

    command = [ROOT / "docker/image-for-tests", "--name"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        engine.client.images.get(name)
    except ImageNotFound:
        pytest.skip("the image is not there; run docker/image-for-tests before the tests")
    return name


@pytest.fixture
def start(engine: ContainerEngine, image: str) -> Iterator[Start]:
    """Starts services of the compose file, as it says; waits until each is healthy."""
    made: list[Any] = []

    def start(name: str, **options: Any) -> Any:
        service = SERVICES[name]
        host, _, inside = service["ports"][0].rpartition(":")
        assert host.startswith("127.0.0.1:")
        one = engine.client.containers.create(
            image,
            service["command"].split(),
            environment={**service.get("environment", {}), "SFUSION_TOKEN": "a-token"},
            ports={f"{inside}/tcp": ("127.0.0.1", None)},
            read_only=service["read_only"],
            tmpfs=dict.fromkeys(service["tmpfs"], ""),
            cap_drop=service["cap_drop"],
            security_opt=service["security_opt"],
            healthcheck={"interval": 500_000_000},
            **options,
        )
        made.append(one)
        one.start()
        while one.reload() or one.health == "starting":
            assert one.status == "running", one.logs().decode()
            time.sleep(0.1)
        assert one.health == "healthy", one.logs().decode()
        one.url = f"http://127.0.0.1:{one.attrs['NetworkSettings']['Ports'][f'{inside}/tcp'][0]['HostPort']}"
        return one

    yield start
    for one in made:
        one.remove(force=True)


def ask(url: str, body: object = None, **headers: str) -> Any:
    request = urllib.request.Request(
        url, body and json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=30
    ) as answer:
        return json.load(answer)


def test_sandbox_and_proxy_answer_as_a_user_without_rights(start: Start) -> None:
    sandbox = start("sandbox")
    program = {"code": "print(1)", "language": "python"}
    assert ask(f"{sandbox.url}/run_code", program)["status"] == "Success"
    assert sandbox.exec_run(["id", "-u"]).output == b"10001\n"
    address = sandbox.attrs["NetworkSettings"]["IPAddress"]
    proxy = start("proxy", extra_hosts={"sandbox": address})
    token = {"x-sfusion-token": "a-token"}
    with urllib.request.urlopen(
        urllib.request.Request(
            f"{proxy.url}/__sfusion/faults",
            b"- {first: 1, what: {status: 418}}",
            token,
            method="PUT",
        )
    ) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError, match="418"):
        ask(f"{proxy.url}/run_code", program, **token)
    assert ask(f"{proxy.url}/run_code", program, **token)["status"] == "Success"


def test_sglang_answers_and_ends_at_a_signal(start: Start) -> None:
    sglang = start("sglang")
    question = {"model": "fake-model", "messages": [{"role": "user", "content": "hello"}]}
    assert ask(f"{sglang.url}/v1/chat/completions", question)["object"] == "chat.completion"
    sglang.stop(timeout=60)
    assert sglang.wait()["StatusCode"] == 0
    assert sglang.logs().endswith(b"stopped\n")
