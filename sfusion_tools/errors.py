"""The errors of sfusion_tools.

    SfusionError
    ├── ConfigError            a tool config, a limiter setting or a URL is wrong (also a ValueError)
    ├── JudgeError             the cases given to a reward are unusable (also a ValueError)
    └── LimiterError           the limiter could not do what was asked
        ├── PermitTimeout      no permit within the time given (also a TimeoutError)
        ├── LimiterUnreachable the limiter does not answer: no Ray, or its actor is gone
        └── LimiterClosed      this end of the limiter was closed while a caller waited

What a sandbox answers is never an exception: see ``sfusion_tools.outcome``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SfusionError(Exception):
    """Base of every error raised by sfusion_tools."""


class ConfigError(SfusionError, ValueError):
    """Raised while reading a configuration: the message names the place, what was found and what was meant."""


class JudgeError(SfusionError, ValueError):
    """Raised when the cases given to a reward cannot be judged at all, whatever the program does."""


class LimiterError(SfusionError):
    """Base of the limiter's errors."""


class PermitTimeout(LimiterError, TimeoutError):
    """Raised when no permit was granted within the time given."""


class LimiterUnreachable(LimiterError):
    """Raised by a transport when the limiter behind it does not answer; clients attach anew."""


class LimiterClosed(LimiterError):
    """Raised to those who wait for a permit when their end of the limiter is closed."""


def near(word: str, known: Iterable[str]) -> str:
    """A clause proposing the nearest known word, or listing them when none is near."""
    words = sorted(known)
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(words)}" if words else "none is known"
