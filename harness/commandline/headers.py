"""The option ``--header``, shared by the commands that talk to a real sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from sfusion.harness.commandline.declaring import option
from sfusion.harness.errors import BadOption

Headers = Annotated[
    list[str] | None,
    option("Header for every request to the real sandbox. Repeatable.", "NAME:VALUE", names="--header"),
]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_FRAMING = ("connection", "content-length", "transfer-encoding")


def read_headers(texts: Iterable[str] | None) -> dict[str, str]:
    """Parse headers typed as ``Name: value``. Errors do not show the value, which may be a secret."""
    headers: dict[str, str] = {}
    for text in texts or ():
        name, colon, value = (part.strip() for part in text.partition(":"))
        if not colon or not _NAME.fullmatch(name):
            # Without a colon the whole text may be the secret.
            raise BadOption("--header takes 'Name: value', such as 'X-Token: abc'; one value has no name or no colon")
        if name.lower() in _FRAMING:
            raise BadOption(f"--header {name}: this header frames each request and cannot be set")
        if not value.isprintable():
            raise BadOption(f"--header {name}: the value contains characters that a header cannot have")
        headers[name] = value
    return headers
