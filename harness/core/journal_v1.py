"""Reads journals of version 1, in which what was wrong with a malformed call is only in the text
for the model.

Nothing else knows that version.
"""

from __future__ import annotations

from typing import Any

VERSION = 1
_MARK = "nothing was run: "
_PROBLEMS = {
    "the arguments must be a JSON object": "arguments are not an object",
    "`code` is missing": "code is missing",
    "`code` must be a string": "code is not a string",
    "`code` is empty": "code is empty",
    "`code` contains a lone surrogate": "code is not text",
    "is not known here": "language is unknown",
    "is not offered here": "language is not offered",
    "`timeout` must be a number of seconds": "timeout is not a number of seconds",
}
"""Texts of that time, with what they say."""


def upgraded(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as a journal of today has it."""
    text = event.get("text")
    if event.get("outcome") != "bad_arguments" or not isinstance(text, str) or _MARK not in text:
        return event
    said = text.partition(_MARK)[2]
    problem = next((problem for words, problem in _PROBLEMS.items() if words in said), said)
    found: dict[str, Any] = {}
    for key, value in event.items():
        found[key] = value
        if key == "outcome":
            found["problem"] = problem
    return found
