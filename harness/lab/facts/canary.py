"""Canaries: words that occur nowhere else.

Wherever a canary is read, it is known who printed it.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_LETTERS = "bcdfghjklmnpqrst"
"""A letter for each hexadecimal digit; without vowels, so that no word of a language appears."""
_TOKEN = re.compile(rf"Zq[{_LETTERS}]{{10}}qZ")
_WORDS = str.maketrans("0123456789", _LETTERS[:10])
"""Writes a number in letters."""


def token(*keys: object) -> str:
    """Return the canary for these keys, always the same; it consists of letters only."""
    joined = "\x1f".join(map(str, keys)).encode()
    digest = hashlib.blake2b(joined, digest_size=5).hexdigest()
    letters = "".join(_LETTERS[int(digit, 16)] for digit in digest)
    return f"Zq{letters}qZ"


def tokens_in(text: str) -> list[str]:
    """Return the canaries in a text, in order."""
    return _TOKEN.findall(text)


def without_tokens(text: str) -> str:
    """Return a text without its canaries."""
    return _TOKEN.sub("", text)


@lru_cache(maxsize=64)
def long_text(size: int, *keys: object) -> str:
    """Return numbered lines with a canary at each end, exactly ``size`` characters.

    There are no blanks at the ends. Every piece of it is found nowhere else in it, and characters
    are not bytes. It has no digits, so that none is taken for one of a wording.
    """
    first = token(*keys, "first")
    last = token(*keys, "last")
    lines = [first]
    length = len(first) + 1
    number = 0
    while length < size:
        number += 1
        word = str(number).translate(_WORDS)
        lines.append(f"row-{word}-é漢-{word}-{first[2:-2]}-{word}-and-so-on-until-{word}")
        length += len(lines[-1]) + 1

    text = "\n".join(lines)
    return text[: size - len(last)] + last
