"""The fixtures for faults, virtual time and scenarios."""

from __future__ import annotations

import pytest

from tests.harness.plugin.conftest import LOUD, QUIET, Run

pytest_plugins = ["pytester"]

SUITE = f'''
import asyncio
import json
import urllib.error
import urllib.request

import pytest

import sfusion
from sfusion import PromisesBroken, ScenarioError

QUIET = """{QUIET}"""
LOUD = """{LOUD}"""


def status(url, call):
    body = json.dumps({{"code": f"# sfusion:call={{call}}", "language": "python"}}).encode()
    headers = {{"content-type": "application/json"}}
    request = urllib.request.Request(url + "/run_code", body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.sandbox_faults([{{"first": 1, "what": {{"status": 503}}}}])
def test_the_marker_sets_faults(fake_sandbox):
    assert [status(fake_sandbox.url, "a"), status(fake_sandbox.url, "b")] == [503, 200]


@pytest.mark.sandbox_faults([{{"what": {{"status": 502}}}}])
@pytest.mark.parametrize("fake_sandbox", [{{"profile": "2025-06"}}], indirect=True)
def test_the_marker_goes_with_options(fake_sandbox):
    assert status(fake_sandbox.url, "a") == 502


def test_without_a_marker_nothing_fails(fake_sandbox):
    assert status(fake_sandbox.url, "a") == 200


async def slowly():
    await asyncio.sleep(3600)
    return asyncio.get_running_loop().time()


def test_an_hour_passes_at_once(virtual_loop):
    assert virtual_loop.run_until_complete(slowly()) == 3600


def test_tasks_left_behind_are_cancelled(virtual_loop):
    async def leave():
        asyncio.get_running_loop().create_task(asyncio.sleep(10))
    virtual_loop.run_until_complete(leave())


def test_the_fixture_is_the_public_function(run_scenario):
    assert run_scenario is sfusion.run_scenario


def test_a_scenario_from_text(run_scenario):
    (result,) = run_scenario(QUIET, seed=11)
    assert result.ok and result.journal.header["seed"] == 11


def test_a_change_that_cannot_be_is_named(run_scenario):
    with pytest.raises(ScenarioError) as wrong:
        run_scenario(QUIET, seed="x")
    assert str(wrong.value).startswith("run_scenario seed=x: seed: input should be a valid integer")
    with pytest.raises(ScenarioError, match="unknown key 'sed'; did you mean 'seed'"):
        run_scenario(QUIET, sed=3)


def test_a_scenario_from_data_and_from_a_file(run_scenario, tmp_path):
    data = {{
        "scenario": "data",
        "about": "x",
        "load": {{"calls": 2}},
        "promises": ["every_call_ends_once"],
        "matrix": {{"tools.rate_limit": [1, 2]}},
    }}
    assert len(run_scenario(data)) == 2
    file = tmp_path / "quiet.yaml"
    file.write_text(QUIET)
    assert run_scenario(file)[0].digest == run_scenario(QUIET)[0].digest


def test_a_broken_promise_fails_the_test(run_scenario):
    with pytest.raises(PromisesBroken, match="broken: outcomes: 3 of 3 calls ended sandbox_error"):
        run_scenario(LOUD)
    (result,) = run_scenario(LOUD, check=False)
    assert result.state == "broken"
'''


def test_every_fixture_works_in_a_user_suite(pytester: pytest.Pytester, run_pytest: Run) -> None:
    pytester.makepyfile(SUITE)
    run_pytest("--strict-markers").assert_outcomes(passed=10)


def test_a_broken_client_fails_with_the_table_of_its_trial(
    pytester: pytest.Pytester, run_pytest: Run
) -> None:
    pytester.makepyfile(
        curt=(
            "import aiohttp\n"
            "async def run(base_url, code):\n"
            "    async with aiohttp.ClientSession() as session:\n"
            "        async with session.post(f'{base_url}/run_code', json={'code': code}) "
            "as answer:\n"
            "            return (await answer.json())['run_result']['stdout']\n"
        ),
        test_it=(
            "import curt\n\ndef test_my_client(sandbox_trial):\n "
            "   sandbox_trial(curt.run, scenes='idle')\n"
        ),
    )
    done = run_pytest()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["*ClientBroken: run is broken", "*Played in virtual time*", "*broken*sent_as_asked*"]
    )


FAILING = """
import json
import urllib.request

import pytest


def call(url, code):
    body = json.dumps({"code": code, "language": "python"}).encode()
    request = urllib.request.Request(url + "/run_code", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["run_result"]["stdout"]


@pytest.mark.sandbox_faults([{"name": "busy", "every": 2, "what": {"status": 429}}])
def test_it_never_tries_again(fake_sandbox):
    for number in range(2):
        call(fake_sandbox.url, f"print({number})")


def test_it_hides_why_nothing_was_printed(fake_sandbox):
    assert call(fake_sandbox.url, "print(1)") == "1"


def test_it_sends_nothing(fake_sandbox):
    assert not fake_sandbox.url


def test_with_real_code(sandbox):
    assert call(sandbox.url, "print(1)") == "2"


def test_that_passes(fake_sandbox):
    call(fake_sandbox.url, "print(1)")
"""


def test_a_failed_test_ends_with_what_its_sandbox_received(
    pytester: pytest.Pytester, run_pytest: Run
) -> None:
    pytester.makepyfile(FAILING)
    done = run_pytest("-q", "-p", "no:sfusion_scenarios")
    done.assert_outcomes(failed=4, passed=1)
    text = done.stdout.str()
    assert text.count("- sfusion: what the sandbox received -") == 4
    first, hidden, nothing, real = text.split("- sfusion: what the sandbox received -")[1:]
    assert "429 (busy); was not sent again" in first
    assert "advice: not sent again: 1 of 1 that failed at first (1 after 429)" in first
    assert "A right client tries again after 429" in first
    assert "fake_sandbox runs no code" in hidden
    assert "no request for work; does the client use the url of the fixture?" in nothing
    assert "1 call, 1 request" in real
    assert "runs no code" not in real
