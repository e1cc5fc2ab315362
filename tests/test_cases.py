"""A test over many cases fails when one of them does, and names it."""

from __future__ import annotations

import re

import pytest

from tests.cases import ONLY, every


def test_every_case_is_tried_and_those_that_fail_are_named() -> None:
    @every(range(5), str)
    def check(number: int) -> None:
        tried.append(number)
        with pytest.raises(ZeroDivisionError):
            number / (number % 2)  # only even numbers divide by zero

    tried: list[int] = []
    with pytest.raises(
        AssertionError,
        match=r"2 of 5 cases failed\n1: Failed: DID NOT RAISE.*\n3: .*\nto try .*SFUSION_CASE='1'",
    ):
        check()
    assert tried == [0, 1, 2, 3, 4]


async def test_asynchronous_cases_are_awaited() -> None:
    @every("ab", str)
    async def check(letter: str) -> None:
        assert letter == "a"

    with pytest.raises(AssertionError, match=re.escape("1 of 2 cases failed\nb: AssertionError")):
        await check()


def test_no_cases_at_all_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        every([], str)(lambda case: None)()


def test_a_variable_selects_cases_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    check = every(["alpha", "beta", "betatron"], str)(tried.append)
    monkeypatch.setenv(ONLY, "beta")
    check()
    assert tried == ["beta", "betatron"]
    monkeypatch.setenv(ONLY, "gamma")
    with pytest.raises(pytest.skip.Exception, match="no case has 'gamma' in its name"):
        check()


def test_all_that_failed_are_named_and_the_first_with_their_errors() -> None:
    @every(range(15), "case-{}".format)
    def check(number: int) -> None:
        raise AssertionError(f"wrong {number}")

    with pytest.raises(AssertionError, match=r"wrong 9\nand case-10, case-11, .*case-14\n"):
        check()
