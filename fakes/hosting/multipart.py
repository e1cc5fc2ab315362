"""Multipart bodies: what clients upload, and what a bulk download answers. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

_MOST_PARTS = 1000
"""Parts that are read (chosen: as many as a sandbox may have files)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form."""

    name: str
    filename: str | None
    content: bytes


def boundary_of(content_type: str) -> str | None:
    """The boundary that a content type names."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary()
    return boundary or None


def read_parts(body: bytes, content_type: str) -> list[Part] | None:
    """The fields of a form; None if the body is not one."""
    boundary = boundary_of(content_type)
    if boundary is None:
        return None
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"))
    if len(pieces) > _MOST_PARTS + 2:
        return None
    parts: list[Part] = []
    for piece in pieces[1:]:
        if piece.startswith(b"--"):
            return parts
        head, found, content = piece.partition(b"\r\n\r\n")
        if not found:
            return None
        parts.append(_part(head, content))
    return None  # the end is missing


def _part(head: bytes, content: bytes) -> Part:
    message = Message()
    for line in head.split(b"\r\n"):
        name, found, value = line.partition(b":")
        if found:
            message[name.decode("latin-1")] = value.strip().decode("utf-8", "replace")
    field = message.get_param("name", "", "content-disposition")
    return Part(str(field), message.get_filename(), content)


def write_parts(parts: list[Part], boundary: str) -> bytes:
    """A form as a server sends it."""
    written = []
    for part in parts:
        name = part.name.replace('"', "%22")
        filename = (part.filename or "").replace('"', "%22").replace("\r", " ").replace("\n", " ")
        head = (
            f"--{boundary}\r\n"
            f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        written.append(head.encode() + part.content + b"\r\n")
    return b"".join([*written, f"--{boundary}--\r\n".encode()])
