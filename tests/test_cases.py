"""A test over many cases fails when one of them does, and names it."""

from __future__ import annotations

import re

import pytest

from tests.cases import every


def test_every_case_is_tried_and_those_that_fail_are_named() -> None:
    @every(range(5), str)
    def check(number: int) -> None:
        tried.append(number)
        with pytest.raises(ZeroDivisionError):
            number / (number % 2)  # only even numbers divide by zero

    tried: list[int] = []
    with pytest.raises(
        AssertionError, match=r"2 of 5 cases failed.*\n1: Failed: DID NOT RAISE.*\n3: "
    ):
        check()
    assert tried == [0, 1, 2, 3, 4]


async def test_asynchronous_cases_are_awaited() -> None:
    @every("ab", str)
    async def check(letter: str) -> None:
        assert letter == "a"

    with pytest.raises(
        AssertionError, match=re.escape("1 of 2 cases failed, among them\nb: AssertionError")
    ):
        await check()


def test_no_cases_at_all_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        every([], str)(lambda case: None)()
