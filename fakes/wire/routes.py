"""Finding the handler of a path as FastAPI does: 404, 405 with Allow, 307 for a missing or extra slash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar
from urllib.parse import quote

from sfusion.fakes.wire.message import Answer

H = TypeVar("H")

_NOT_FOUND = b'{"detail":"Not Found"}'
_NOT_ALLOWED = b'{"detail":"Method Not Allowed"}'
_SAFE_IN_LOCATION = ":/%#?=@[]!$&'()*+,"


class Routes(Generic[H]):
    """A table ``{path: {method: handler}}`` of exact paths; a handler can be any object."""

    def __init__(self, table: Mapping[str, Mapping[str, H]]) -> None:
        self._table = {path: dict(methods) for path, methods in table.items()}

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._table)

    def find(self, method: str, path: str, *, host: str, query: str = "") -> H | Answer:
        """The handler, or the answer that there is none. ``host`` is the Host header, or the server's address."""
        methods = self._table.get(path)
        if methods is None:
            return self._elsewhere(path, host, query)
        handler = methods.get(method)
        if handler is None:
            return Answer(status=405, body=_NOT_ALLOWED, headers=(("allow", ", ".join(sorted(methods))),))
        return handler

    def _elsewhere(self, path: str, host: str, query: str) -> Answer:
        other = path.rstrip("/") if path.endswith("/") else path + "/"
        if path != "/" and other in self._table:
            url = f"http://{host}{other}" + (f"?{query}" if query else "")
            location = quote(url, safe=_SAFE_IN_LOCATION)
            return Answer(status=307, content_type=None, late_headers=(("location", location),))
        return Answer(status=404, body=_NOT_FOUND)
