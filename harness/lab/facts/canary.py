"""Canaries: words that occur once in the world, so that wherever one is read, it is known who
printed it."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_LETTERS = "bcdfghjklmnpqrst"
_TOKEN = re.compile(r"Zq[bcdfghjklmnpqrst]{10}qZ")


def token(*keys: object) -> str:
    """Return the word for these keys, always the same: letters only, found again by
    ``tokens_in``."""
    digest = hashlib.blake2b("\x1f".join(map(str, keys)).encode(), digest_size=5).hexdigest()
    return f"Zq{''.join(_LETTERS[int(one, 16)] for one in digest)}qZ"


def tokens_in(text: str) -> list[str]:
    """Return the canaries in a text, in order."""
    return _TOKEN.findall(text)


def without_tokens(text: str) -> str:
    return _TOKEN.sub("", text)


@lru_cache(maxsize=64)
def long_text(size: int, *keys: object) -> str:
    """Return numbered lines with a canary at each end, exactly ``size`` characters and no blanks at
    the ends.

    Every piece of it is found nowhere else in it, and characters are not bytes. It has no digits,
    so that none is taken for one of a wording.
    """
    first, last = token(*keys, "first"), token(*keys, "last")
    lines, length, number = [first], len(first) + 1, 0
    while length < size:
        number += 1
        word = str(number).translate(_WORDS)
        lines.append(f"row-{word}-é漢-{word}-{first[2:-2]}-{word}-and-so-on-until-{word}")
        length += len(lines[-1]) + 1
    text = "\n".join(lines)
    return text[: size - len(last)] + last


_WORDS = str.maketrans("0123456789", _LETTERS[:10])
