"""Clients of every shape, as small as they can be."""

import os
from dataclasses import dataclass

import aiohttp
import requests

ADDRESS = "http://localhost:8080/run_code"
READ_AT_IMPORT = os.environ.get("SANDBOX_FUSION_URL", "") + "/run_code"


def _post(url, **body):
    return requests.post(url, json=body, timeout=20).json()


def by_environment(code):
    return _post(os.environ["SANDBOX_FUSION_URL"] + "/run_code", code=code, language="python")[
        "run_result"
    ]["stdout"]


def by_other_name(code):
    return _post(os.environ["MY_SANDBOX"] + "/run_code", code=code, language="python")[
        "run_result"
    ]["stdout"]


def at_import(code):
    return _post(READ_AT_IMPORT, code=code, language="python")["run_result"]["stdout"]


def by_attribute(code):
    return _post(ADDRESS, code=code, language="python")["run_result"]["stdout"]


def whole_address(url, program, lang, timeout=10):
    return _post(url, code=program, language=lang, run_timeout=timeout)


def timeout_of_its_own(base_url, code, timeout=10):
    return requests.post(
        f"{base_url}/run_code", json={"code": code, "language": "python"}, timeout=timeout
    ).json()


async def asynchronous(endpoint, code, *, stdin=None, language="python"):
    async with aiohttp.ClientSession() as session:
        body = {"code": code, "language": language, "stdin": stdin}
        async with session.post(f"{endpoint}/run_code", json=body) as answer:
            return await answer.text()


@dataclass
class Runner:
    base_url: str
    memory_limit_mb: int = 100

    def run_code(self, code, language="python"):
        return _post(
            f"{self.base_url}/run_code",
            code=code,
            language=language,
            memory_limit_MB=self.memory_limit_mb,
        )


def compute_score(
    sandbox_fusion_url,
    concurrent_semaphore,
    memory_limit_mb,
    completion,
    test_cases,
    continuous=False,
):
    passed = []
    for given, wanted in zip(test_cases["inputs"], test_cases["outputs"], strict=True):
        answer = _post(
            sandbox_fusion_url,
            code=completion,
            language="python",
            stdin=given,
            memory_limit_MB=memory_limit_mb,
        )
        passed.append((answer.get("run_result") or {}).get("stdout", "").strip() == wanted.strip())
    return sum(passed) / len(passed), [{"passed": one} for one in passed]


def raises_what_is_lost(sandbox_fusion_url, completion, test_cases):
    passed = []
    for given, wanted in zip(test_cases["inputs"], test_cases["outputs"], strict=True):
        answer = _post(sandbox_fusion_url, code=completion, language="python", stdin=given)
        if answer["status"] == "SandboxError":
            raise RuntimeError("a test was lost: there is no score")
        run = answer["run_result"]
        passed.append(run["return_code"] == 0 and run["stdout"].strip() == wanted.strip())
    return sum(passed) / len(passed)


async def strips_its_tests(url, completion, tests, run_timeout=10):
    """It changes the tests of its caller, and rounds the time limit."""
    tests["outputs"] = [wanted.strip() for wanted in tests["outputs"]]
    for given in tests["inputs"]:
        async with aiohttp.ClientSession() as session:
            body = {
                "code": completion,
                "language": "python",
                "stdin": given,
                "run_timeout": run_timeout + 1,
            }
            await session.post(url, json=body, timeout=aiohttp.ClientTimeout(20))


def unknown_parameter(code, flavour):
    """Nobody knows what to pass for ``flavour``."""


def hidden_parameters(*args, **kwargs):
    """As behind a decorator."""


class Pool:
    """Has a list of addresses."""

    def __init__(self, base_urls):
        self.base_urls = base_urls

    def run(self, code):
        return requests.post(
            f"{self.base_urls[0]}/run_code", json={"code": code, "language": "python"}
        ).text


def sends_nothing(code):
    return "done"


class HalfATool:
    """It looks like a tool of verl's."""

    async def create(self, instance_id, **more):
        return instance_id

    async def execute(self, instance_id, parameters, **more):
        return "", None, {}


NUMBER = 7


class NotAClient:
    """Has nothing to call."""
