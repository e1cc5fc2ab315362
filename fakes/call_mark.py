"""The mark of a call: ``sfusion:call=ID`` in a comment of its code.

A workload writes it, and a ledger follows the calls of any client by it, also of one that sends no
header of ours.
"""

from __future__ import annotations

import re

from .recent_counts import LONGEST_NAME

_BEGINNING = "sfusion:call="
CALL_MARK = re.compile(rf"{_BEGINNING}([A-Za-z0-9._-]{{1,{LONGEST_NAME}}})")


def mark_for(call: str) -> str:
    """Return the mark of a call, to be put into a comment."""
    return _BEGINNING + call
