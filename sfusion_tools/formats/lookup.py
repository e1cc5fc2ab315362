"""Which format a chat template or a model stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .format import Format


def find_format(forms: Iterable[Format], template: str | None, model: str | None) -> Format | None:
    """Return the format whose signs the template has, or whose pattern the id of the model matches.

    The template decides if both are given: people train models with other templates than their own. Of several formats
    the one with the longest signs, or with the first and longest match, is the most special.
    """
    found: list[tuple[tuple[int, int], Format]] = []
    for form in forms:
        if template and form.signs and all(sign in template for sign in form.signs):
            found.append(((0, sum(map(len, form.signs))), form))
    for form in forms if not found and model else ():
        if form.models and (match := re.search(form.models, model or "", re.IGNORECASE)):
            found.append(((-match.start(), len(match[0])), form))
    return max(found, key=lambda pair: pair[0])[1] if found else None
