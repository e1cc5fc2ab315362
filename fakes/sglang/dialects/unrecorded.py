"""Formats whose parsers in sglang were not recorded, with malformed texts of their own."""

from __future__ import annotations

from sfusion.fakes.sglang.dialects import Dialect
from sfusion.fakes.sglang.malformed_kinds import expecting

DIALECTS = (
    # Without a name, an object is not known to be a call; where the name is a key, any key is a name.
    Dialect("xlam", malformed={"missing_name": expecting("missing_name", ("noticed", "untagged_call"))}),
    Dialect("apertus", malformed={"missing_name": expecting("missing_name", ("refused", "unknown_tool"))}),
)
