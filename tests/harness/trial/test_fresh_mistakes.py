"""Mistakes that slipped when an outsider tried the trial, each in a client that is right without
it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import judge

CAREFUL = """
import asyncio, json, re
import aiohttp

LINES = 50

def numbered(text):
    lines = text.removesuffix("\\n").split("\\n")
    skip = max(0, len(lines) - LINES)
    note = f"({skip} earlier lines are left out)\\n" if skip else ""
    numbered = enumerate(lines[skip:], skip + 1)
    return note + "\\n".join(f"{number:>5}: {line}" for number, line in numbered)

def failed(said):
    return {"text": said}

def told(data, timeout):
    part = data["run_result"]
    if data["status"] == "SandboxError":
        return failed(f"sandbox: it failed by itself: {data['message']}")
    streams = {name: part[name] for name in ("stdout", "stderr")}
    shown = "".join(f"\\n[{name}]\\n{numbered(text)}" for name, text in streams.items() if text)
    code = part["return_code"]
    if part["status"] == "TimeLimitExceeded":
        text = f"stopped after {timeout:g} seconds{shown}"
    elif code is None or (code == 0) != (data["status"] == "Success"):
        return failed("sandbox: it contradicts itself")
    elif code:
        text = f"failed with exit code {code}{shown}"
    else:
        text = f"done{shown}" if shown else "done, nothing was printed"
    return {"text": text, **streams}

async def run(url, code, timeout=10.0, headers=None):
    body = {"code": code, "language": "python", "run_timeout": timeout}
    limit = aiohttp.ClientTimeout(total=timeout + 20)
    for attempt in range(3):
        try:
            async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:
                async with session.post(f"{url}/run_code", json=body) as answer:
                    said = await answer.text()
        except aiohttp.ClientConnectorError:
            return failed("sandbox: not there, the program did not run")
        except asyncio.TimeoutError:
            return failed("sandbox: silent, the program may have run")
        except aiohttp.ClientError:
            return failed("sandbox: it hung up, the program may have run")
        asked = answer.headers.get("Retry-After", "1")
        if answer.status not in (429, 503) or not re.fullmatch(r"\\d+", asked) or int(asked) > 100:
            break
        await asyncio.sleep(int(asked))
    if answer.status == 503:
        return failed("sandbox: closed, the program did not run")
    if answer.status != 200:
        return failed(f"sandbox: status {answer.status}: {said}")
    try:
        return told(json.loads(said), timeout)
    except (ValueError, KeyError, TypeError):
        return failed("sandbox: it talks nonsense")
"""
"""It numbers lines, reads Retry-After in whole seconds only, and returns streams beside the
text."""


def _judged(folder: Path, source: str, scenes: str) -> TrialResult:
    (folder / "careful.py").write_text(source, encoding="utf-8")
    return judge(f"{folder / 'careful.py'}:run", scenes=scenes)


def _broken(results: Iterable[TrialResult]) -> set[tuple[str, str]]:
    return {
        (one.promise, one.how.kind)
        for found in results
        for one in found.verdicts
        if one.state == "broken"
    }


def test_the_careful_client_is_not_accused(tmp_path: Path) -> None:
    assert _broken([_judged(tmp_path, CAREFUL, "")]) == set()


def test_no_exit_code_may_be_success_if_the_sandbox_says_so(tmp_path: Path) -> None:
    strict = 'code is None or (code == 0) != (data["status"] == "Success")'
    lenient = CAREFUL.replace(strict, 'bool(code) == (data["status"] == "Success")')
    assert lenient != CAREFUL
    assert _broken([_judged(tmp_path, lenient, "failures")]) == set()


HEAD = """async def run(url, code, timeout=10.0, headers=None):
    body = {"code": code, "language": "python", "run_timeout": timeout}
    limit = aiohttp.ClientTimeout(total=timeout + 20)
    for attempt in range(3):
"""
ENOUGH = """\
        if answer.status not in (429, 503) or not re.fullmatch(r"\\d+", asked) or int(asked) > 100:
            break
"""
DENIED = """    elif code is None or (code == 0) != (data["status"] == "Success"):
        return failed("sandbox: it contradicts itself")
    elif code:"""
WORDS = {
    "the body of an error as output": (
        'failed(f"sandbox: status {answer.status}: {said}")',
        '{"text": f"done\\n[stdout]\\n{numbered(said)}"}',
        "programs or failures",
        ("ends_told_apart", "same"),
    ),
    "a failure of the sandbox as one of the program": (
        """failed(f"sandbox: it failed by itself: {data['message']}")""",
        """{"text": f"failed with exit code 1\\n[stderr]\\n{numbered(data['message'])}"}""",
        "programs or failures",
        ("exit_code_told", "none"),
    ),
    "an exit code of a program that was stopped": (
        'f"stopped after {timeout:g} seconds{shown}"',
        'f"failed with exit code 124{shown}" if shown else "stopped"',
        "programs",
        ("exit_code_told", "none"),
    ),
    "success that the exit code denies": (
        DENIED,
        '    elif data["status"] != "Success":',
        "programs or failures",
        ("ends_told_apart", "believed"),
    ),
    "stderr as nothing": (
        '        text = f"done{shown}" if shown else',
        '        streams.pop("stderr")\n        text = f"done{shown}" if streams["stdout"] else',
        "programs",
        ("ends_told_apart", "silent"),
    ),
    "another time limit": (
        "{timeout:g} seconds",
        "10 seconds",
        "programs",
        ("text_is_truthful", "limit"),
    ),
    "a line too few in a note": (
        "({skip} ",
        "({skip - 1} ",
        "programs",
        ("text_is_truthful", "cut_untrue"),
    ),
    "a second gap": (
        "enumerate(lines[skip:], skip + 1)",
        "[*enumerate(lines[skip:], skip + 1)][: LINES // 2] + [*enumerate(lines, 1)][-9:]",
        "programs",
        ("text_is_truthful", "cut_twice"),
    ),
    "rare ends of lines": (
        '.split("\\n")',
        ".splitlines()",
        "programs",
        ("text_is_truthful", "changed"),
    ),
    "words in brackets": (
        '"stdout", "stderr")}',
        (
            '"stdout", "stderr")}\n    streams = {name: re.sub(r"\\[[A-Z]", "", text) for '
            "name, text in streams.items()}"
        ),
        "programs",
        ("text_is_truthful", "changed"),
    ),
}
WIRE = {
    "a field that no server knows": (
        '"run_timeout": timeout',
        '"time_limit": timeout',
        "idle",
        ("sent_as_asked", "not_sent"),
    ),
    "a timeout for nothing": (
        '"run_timeout": timeout',
        '"run_timeout": 10',
        "patience",
        ("sent_as_asked", "limits_nothing"),
    ),
    "headers of the caller are changed": (
        "    limit =",
        '    if headers:\n        headers["Accept"] = "*/*"\n    limit =',
        "idle",
        ("arguments_unchanged", "altered"),
    ),
    "a body that is not said to be JSON": (
        "json=body",
        "data=json.dumps(body)",
        "idle",
        ("sent_as_asked", "rejected"),
    ),
    "ends of lines in code": (
        '"code": code',
        '"code": code.replace("\\r\\n", "\\n")',
        "programs",
        ("sent_as_asked", "field"),
    ),
    "backticks around code": (
        '"code": code',
        '"code": code.strip("`")',
        "programs",
        ("sent_as_asked", "field"),
    ),
    "a short patience": (
        "total=timeout + 20",
        "total=30",
        "programs",
        ("programs_waited_for", "given_up"),
    ),
    "a pause that is cut": (
        "sleep(int(asked))",
        "sleep(min(9, int(asked)))",
        "failures",
        ("retry_after_honoured", "early"),
    ),
    "the first piece of an answer": (
        "await answer.text()",
        'await answer.content.readany() or b"-"',
        "programs",
        ("programs_waited_for", "unread"),
    ),
    "a later attempt without the input": (
        HEAD,
        """async def run(url, code, stdin=None, timeout=10.0, headers=None):
    body = {"code": code, "language": "python", "run_timeout": timeout}
    limit = aiohttp.ClientTimeout(total=timeout + 20)
    for attempt in range(3):
        body["stdin"], stdin = stdin, None
""",
        "failures",
        ("sent_as_asked", "field"),
    ),
    "later attempts with less time": (
        "aiohttp.ClientSession(timeout=limit,",
        "aiohttp.ClientSession(timeout=aiohttp.ClientTimeout((timeout + 20) / 4**attempt),",
        "patience",
        ("programs_waited_for", "sooner"),
    ),
    "a date in Retry-After read as a number": (
        ENOUGH,
        """        try:
            if answer.status not in (429, 503) or int(asked) > 100:
                break
        except ValueError as error:
            return failed(f"sandbox: it talks nonsense: {error!r}")
""",
        "failures",
        ("only_transient_retried", "by_a_date"),
    ),
}


def test_a_timeout_may_be_that_of_the_connection(tmp_path: Path) -> None:
    own = CAREFUL.replace('"run_timeout": timeout', '"run_timeout": 10')
    own = own.replace("total=timeout + 20", "sock_read=timeout")
    assert ("sent_as_asked", "limits_nothing") not in _broken([_judged(tmp_path, own, "patience")])


@pytest.mark.parametrize("name", [*WORDS, *WIRE])
def test_its_mistakes_are_seen(name: str, tmp_path: Path) -> None:
    right, wrong, scenes, finding = (WORDS | WIRE)[name]
    assert right in CAREFUL
    assert finding in _broken([_judged(tmp_path, CAREFUL.replace(right, wrong), scenes)])


def test_the_cause_of_a_total_failure_comes_first_and_alone(tmp_path: Path) -> None:
    found = _judged(tmp_path, CAREFUL.replace("json=body", "data=json.dumps(body)"), "programs")
    broken = [verdict for verdict in found.sorted_verdicts() if verdict.state == "broken"]
    assert {verdict.promise for verdict in broken} == {"sent_as_asked"}
    assert "was sent with content type 'text/plain" in broken[0].sentence
    assert "was refused by the sandbox with 422: 'body: Input should be" in broken[1].sentence
    (meaning,) = [meaning for meaning in found.meanings if not meaning.advice]
    assert meaning.instead.startswith("sent with content type 'text/plain")
