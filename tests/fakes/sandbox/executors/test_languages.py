"""The client, the scripted executor and the one that runs programs agree on what is compiled."""

from __future__ import annotations

from sfusion.fakes.sandbox.executors.python.languages import LANGUAGES
from sfusion_tools.sandbox.program import COMPILE_TIME, COMPILED, Bounds, Program


def test_compiled_languages_are_those_with_a_command_that_compiles() -> None:
    assert {name for name, language in LANGUAGES.items() if language.compile} == COMPILED


def test_an_attempt_has_time_to_compile_where_the_server_takes_it() -> None:
    takes_it = {name for name, one in LANGUAGES.items() if one.compile or one.prepare}
    assert takes_it == COMPILE_TIME
    bounds = Bounds(margin=5.0)
    limits = {"timeout": 30.0, "compile_timeout": 10.0}
    attempts = {name: bounds.of(Program("", name, **limits))[0] for name in LANGUAGES}
    assert {name for name, seconds in attempts.items() if seconds == 45.0} == takes_it
    assert set(attempts.values()) == {35.0, 45.0}
