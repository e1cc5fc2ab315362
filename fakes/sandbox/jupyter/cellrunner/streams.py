"""Sends standard output and error of a cell as messages."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

Send = Callable[[str, Any], None]


class OutStream(io.TextIOBase):
    """A text stream without an underlying byte stream, like a kernel's."""

    encoding = "UTF-8"
    errors = None

    def __init__(self, name: str, fd: int, send: Send) -> None:
        """Send written text as messages of the stream `name`."""
        self.name = name
        self._fd = fd
        self._send = send

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """Return the descriptor that child processes of the cell write to."""
        return self._fd

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text)}")
        if text:
            self._send("stream", {"name": self.name, "text": text})
        return len(text)


def sendable(content: Any) -> Any:
    """Write lone surrogates as escapes, here and in everything inside: they cannot be sent on as UTF-8."""
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace").decode()
    if isinstance(content, dict):
        return {name: sendable(value) for name, value in content.items()}
    return [sendable(value) for value in content] if isinstance(content, list) else content
