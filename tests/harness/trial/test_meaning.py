"""What the findings of a trial mean for a training: the first screen of ``sfusion judge``."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from sfusion.harness.lab.promises.registry import OF_SINGLE_CALLS
from sfusion.harness.lab.single_calls.in_words import fault_in_words
from sfusion.harness.lab.single_calls.planned import FaultPart
from sfusion.harness.trial.lessons import LESSONS
from sfusion.harness.trial.meaning import SHOWN
from sfusion.harness.trial.result import TrialResult
from sfusion.harness.trial.trial import judge
from tests.cases import every


async def naive(base_url: str, code: str, language: str = "python") -> str:
    """The client of docs/judge.md."""
    async with aiohttp.ClientSession() as session:
        body = {"code": code, "language": language}
        async with session.post(f"{base_url}/run_code", json=body) as answer:
            data = await answer.json()
    stdout: str = data["run_result"]["stdout"]
    return stdout


async def careful(base_url: str, code: str, language: str = "python") -> str:
    """Tells every end apart, and never tries again."""
    timeout = aiohttp.ClientTimeout(total=60)
    body = {"code": code, "language": language}
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            async with session.post(f"{base_url}/run_code", json=body) as answer:
                if answer.status != 200:
                    return f"The sandbox answered {answer.status}."
                data = await answer.json(content_type=None)
        except aiohttp.ClientConnectorError:
            return "The sandbox was not there."
        except (aiohttp.ClientError, TimeoutError):
            return "The answer was lost."
        except ValueError:
            return "The answer was unreadable."
    return _text(data)


def _text(data: dict[str, dict[str, str | int | None]]) -> str:
    compiled = data.get("compile_result")
    if data.get("status") == "SandboxError" or not (compiled or data.get("run_result")):
        return "The sandbox broke down."
    if compiled and compiled["status"] == "TimeLimitExceeded":
        return "The compiler ran too long."
    if compiled and compiled["return_code"]:
        return f"{compiled['stdout'] or ''}{compiled['stderr'] or ''}\nIt did not compile."
    ran = data.get("run_result") or {}
    output = f"{ran.get('stdout') or ''}{ran.get('stderr') or ''}"
    if ran.get("status") == "TimeLimitExceeded":
        return f"{output}\nIt ran too long."
    if ran.get("return_code") is None or (data["status"] == "Success") == bool(ran["return_code"]):
        return "The answer was contradictory."
    return f"{output}\nexit code {ran['return_code']}" if ran["return_code"] else output


@pytest.fixture(scope="module")
def of_naive() -> TrialResult:
    return judge(naive)


def test_the_worst_comes_first_with_an_example_and_a_remedy(of_naive: TrialResult) -> None:
    assert str(of_naive.grade) == "tells 1 of 9 ends apart"
    first, second, *others = of_naive.meanings
    assert first.title.startswith("A sandbox that fails looks like a program that printed nothing")
    assert first.of > first.count > 0
    assert first.example is not None
    assert "the sandbox answers SandboxError" in first.example.played
    assert first.example.returned == "returned ''"
    assert second.title.startswith("A program that crashes or runs into its time limit looks like")
    harms = [meaning.harm for meaning in of_naive.meanings]
    assert harms == sorted(harms)
    assert [meaning.advice for meaning in of_naive.meanings] == [False] * (len(harms) - 1) + [True]
    assert any(meaning.title == "The model never reads stderr of its program" for meaning in others)


def test_every_finding_is_explained_once_and_has_a_remedy(of_naive: TrialResult) -> None:
    broken = [verdict for verdict in of_naive.verdicts if verdict.state == "broken"]
    explained = [how for meaning in of_naive.meanings for how in meaning.findings]
    assert {verdict.how for verdict in broken} == set(explained)
    assert all(of_naive.remedy_of(verdict) for verdict in broken)
    data = of_naive.as_dict()
    found = [verdict for verdict in data["verdicts"] if verdict["state"] == "broken"]
    assert all(verdict["how"]["details"]["case"]["played"] for verdict in found)
    assert all(verdict["remedy"].startswith("A right client ") for verdict in found)
    assert data["ends"] == {"told": 1, "of": 9}


def test_the_first_screen_is_short_and_what_does_not_apply_is_one_line(
    of_naive: TrialResult,
) -> None:
    text = of_naive.table()
    screen = text.partition("\n  broken")[0].splitlines()
    assert len(screen) <= 4 + 3 * SHOWN
    assert "Does not apply (14): arguments_unchanged, outcomes" in text
    assert "  unknown" not in text
    assert "[played:" not in text, "what a meaning shows is not repeated in the table"
    assert text.count("raised ContentTypeError: 200") == 0
    assert of_naive.table(all_wordings=True).count("raised ContentTypeError: 200") == 2
    assert text.endswith("naive tells 1 of 9 ends apart; 7 broken, 10 held, 14 not applicable.")


def test_a_careful_client_that_never_tries_again_is_advised_and_not_broken() -> None:
    result = judge(careful, scenes="failures or programs or down")
    assert result.ok, result.table()
    assert str(result.grade) == "tells 9 of 9 ends apart"
    (advice,) = result.meanings
    assert advice.advice
    assert (advice.count, advice.of) == (6, 6)
    assert "a retry would have saved 6 of 6 (advice, not broken)" in result.table()
    assert advice.example is not None
    assert "504" not in advice.example.sent, "its program may have run: not the plainest example"


def test_advice_names_what_its_example_shows() -> None:
    """A client whose calls only a 504 loses reads of 504."""

    async def half(base_url: str, code: str, language: str = "python") -> str:
        words = ""
        for attempt in range(4):
            words = await careful(base_url, code, language)
            if words == "The sandbox answered 504." or not words.startswith("The "):
                return words
            await asyncio.sleep(5 * (attempt + 1))
        return words

    meanings = judge(half, scenes="failures").meanings
    advice = next(meaning for meaning in meanings if meaning.advice)
    assert advice.example is not None
    assert "504" in advice.example.sent
    assert "after a 504 too" in advice.remedy


def test_a_failure_is_described_as_what_it_is() -> None:
    answers = {
        "200 with a contradictory result": {"status": "Success", "run_result": {"return_code": 1}},
        "200 with a compiler that is missing": {
            "status": "Failed",
            "compile_result": {"return_code": 127},
            "run_result": None,
        },
        "200": {"detail": "no result at all"},
    }
    for words, body in answers.items():
        fault = FaultPart.model_validate({"what": {"status": 200, "body": body}})
        assert fault_in_words(fault) == f"the sandbox answers {words}"


def test_a_field_that_is_missing_is_not_called_a_wrong_one() -> None:
    async def sometimes(base_url: str, code: str, language: str = "python") -> dict[str, str]:
        text = await careful(base_url, code, language)
        if text.startswith("The sandbox"):
            return {"text": text}
        return {"text": text, "outcome": "ran" if "exit code" in text else text[-20:]}

    meanings = judge(sometimes, scenes="failures").meanings
    kinds = {how.kind: meaning for meaning in meanings for how in meaning.findings}
    assert kinds["unstated"].title == (
        "Some results lack the field that states the outcome in others"
    )
    assert "same fields" in kinds["unstated"].remedy


def test_a_client_that_tries_again_gets_no_advice() -> None:
    async def patient(base_url: str, code: str, language: str = "python") -> str:
        words = ""
        for attempt in range(4):
            words = await careful(base_url, code, language)
            if words.startswith("The sandbox answered 4") and words[-4:-1] != "429":
                return words
            if not words.startswith(("The sandbox answered", "The answer was lost")):
                return words
            await asyncio.sleep(5 * (attempt + 1))
        return words

    result = judge(patient, scenes="failures")
    assert not any(meaning.advice for meaning in result.meanings), result.table()


@every({name: name for name in sorted({promise.name for promise in OF_SINGLE_CALLS})}, name=str)
def test_every_promise_has_a_lesson(promise: str) -> None:
    assert (promise, "") in LESSONS
