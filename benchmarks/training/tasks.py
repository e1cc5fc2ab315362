"""What the model is asked, and how it is shown to answer.

A product can be learned by head; a secret cannot; the best of four looks needs four calls to be
sure of.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from .vocabulary import ANSWER, CALL, CALL_END, END, RESULT, RESULT_END, UNKNOWN

LOOKS = 4
"""Numbers of which the largest is asked for."""
SECRETS = 4
"""Different secrets, so that a guess is right in a quarter of the cases."""
FIRST_LOOK_FROM = 55
OTHER_LOOKS_UP_TO = 89
"""Looks are from 10 to 99; with these bounds the first is the largest in 62 % of the cases."""

Kind = Literal["product", "secret", "looks"]


def secret(a: int, b: int) -> int:
    """Return a number that only the sandbox can compute."""
    return hashlib.sha256(f"secret {a} {b}".encode()).digest()[0] % SECRETS


def look(a: int, b: int, place: int) -> int:
    """Return one of the numbers of which the largest is asked for."""
    drawn = int.from_bytes(hashlib.sha256(f"look {a} {b} {place}".encode()).digest()[:4], "big")
    if place == 1:
        return FIRST_LOOK_FROM + drawn % (100 - FIRST_LOOK_FROM)
    return 10 + drawn % (OTHER_LOOKS_UP_TO - 10 + 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """One question, the programs that answer it, and the answer."""

    kind: Kind
    a: int
    b: int

    @property
    def prompt(self) -> str:
        asked = {
            "product": "{a}*{b}=?\n",
            "secret": "secret({a},{b})=?\n",
            "looks": "look({a},{b})=?\n",
        }
        return asked[self.kind].format(a=self.a, b=self.b)

    def program(self, place: int = 1) -> str:
        """Return the expression of one call."""
        if self.kind == "product":
            return f"{self.a}*{self.b}"
        if self.kind == "secret":
            return f"secret({self.a},{self.b})"
        return f"look({self.a},{self.b},{place})"

    def result(self, place: int = 1) -> int:
        """Return what the program of one call prints."""
        if self.kind == "product":
            return self.a * self.b
        if self.kind == "secret":
            return secret(self.a, self.b)
        return look(self.a, self.b, place)

    @property
    def answer(self) -> int:
        if self.kind != "looks":
            return self.result()
        return max(self.result(place) for place in range(1, LOOKS + 1))


def draw_problem(kind: Kind, draw: Random) -> Problem:
    return Problem(kind, draw.randint(10, 99), draw.randint(2, 9))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and whether the model writes it."""

    text: str
    written: bool


@dataclass(frozen=True, slots=True)
class Lessons:
    """What demonstrations show: a mix of ways to answer, some of them wrong on purpose."""

    kind: Kind
    head: float
    """Share of demonstrations without the tool."""
    head_wrong: float = 0.0
    """Share of those whose answer is wrong, so that the model knows more than it shows."""
    slips: float = 0.05
    """Share of programs that compute something else, so that a call is not always right."""
    failures: float = 0.15
    """Share of demonstrations with the tool in which a call fails, and the model gives up."""
    check: float = 0.5
    """Share of demonstrations with all looks instead of one; for looks only."""

    def draw(self, draw: Random) -> list[Piece]:
        problem = draw_problem(self.kind, draw)
        prompt = Piece(problem.prompt, written=False)
        if draw.random() < self.head:
            return [prompt, _answer(self._by_head(problem, draw))]
        return [prompt, *self._by_tool(problem, draw)]

    def _by_head(self, problem: Problem, draw: Random) -> int:
        if problem.kind == "secret":
            return draw.randrange(SECRETS)
        if draw.random() < self.head_wrong:
            return problem.answer + draw.choice((-10, -2, -1, 1, 2, 10))
        return problem.answer

    def _by_tool(self, problem: Problem, draw: Random) -> list[Piece]:
        calls = 1
        if problem.kind == "looks" and draw.random() < self.check:
            calls = LOOKS
        fails_at = draw.randint(1, calls) if draw.random() < self.failures else None
        asked = problem
        if draw.random() < self.slips:
            asked = replace(problem, a=draw.randint(10, 99))

        pieces: list[Piece] = []
        results: list[int] = []
        for place in range(1, calls + 1):
            pieces.append(Piece(CALL + asked.program(place) + CALL_END, written=True))
            if place == fails_at:
                pieces.append(Piece(RESULT + "failed" + RESULT_END, written=False))
                return [*pieces, _answer(UNKNOWN)]
            results.append(asked.result(place))
            pieces.append(Piece(f"{RESULT}{results[-1]}{RESULT_END}", written=False))
        return [*pieces, _answer(max(results))]


def _answer(value: int | str) -> Piece:
    return Piece(f"{ANSWER}{value}{END}", written=True)
