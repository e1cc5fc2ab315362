"""A probe: one request, with a sentence that says what it is for."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
Token = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n\x00]*$")]

JSON = "application/json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProbeRequest(_Strict):
    """An HTTP request without the address of the server."""

    method: Token = "POST"
    path: Annotated[str, StringConstraints(pattern=r"^/[!-~]*$")] = "/run_code"
    headers: dict[Token, Line | None] = Field(default_factory=dict)
    """Sent as they are; null removes the content type that `json` implies."""
    body: Any = Field(default=None, alias="json")
    text: str | None = None
    base64: str | None = None
    spaces: int = 0
    """Spaces after the body, which make a request large but not the file."""

    @property
    def content(self) -> bytes:
        if "body" in self.model_fields_set:
            content = json.dumps(self.body).encode()
        elif self.text is not None:
            content = self.text.encode("utf-8", "surrogatepass")
        elif self.base64 is not None:
            content = base64.b64decode(self.base64)
        else:
            content = b""
        return content + b" " * self.spaces

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers, including the content type of a JSON body."""
        own = {name: value for name, value in self.headers.items() if value is not None}
        if "body" in self.model_fields_set and "content-type" not in {name.lower() for name in self.headers}:
            own["content-type"] = JSON
        return own


class Probe(_Strict):
    id: Name
    """Group and name, such as ``stdin/empty``."""
    about: Annotated[str, StringConstraints(pattern=r"^[A-Z].*[.]$", min_length=15, max_length=160)]
    """One sentence."""
    request: ProbeRequest | None = None
    raw: str | None = None
    """Bytes to send instead of a request, one character each (latin-1)."""
    varies: tuple[str, ...] = ()
    """Parts of the answer that may differ between machines: ``body.run_result.stdout``, ``header.allow``, ``body``."""
    needs: tuple[str, ...] = ()
    """Commands or modules; answers from a machine that lacks one are not comparable."""
    slow: bool = False
    """Takes seconds; skipped by --quick."""
    alone: bool = False
    """Sent while nothing else is in flight."""
    racy: bool = False
    """The outcome depends on a race inside the server, so even one server answers differently from run to run."""
    burst: int = 1
    """How many copies are sent at once; the worst answer counts."""

    @property
    def group(self) -> str:
        return self.id.partition("/")[0]

    @property
    def method(self) -> str:
        if self.request is not None:
            return self.request.method
        return (self.raw or "").partition(" ")[0]

    @property
    def runs(self) -> Literal["/run_code", "/run_jupyter"] | None:
        """The endpoint, if the request may run code."""
        path = self.request.path.partition("?")[0] if self.request is not None else None
        if self.method == "POST" and path in ("/run_code", "/run_jupyter"):
            return path  # type: ignore[return-value] # it is one of the two
        return None
