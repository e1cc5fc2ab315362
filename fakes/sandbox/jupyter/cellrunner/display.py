"""Sends what a cell prints and displays, and provides the commonly used parts of `IPython.display`."""

from __future__ import annotations

import base64
import inspect
import io
import json
import pprint
import sys
import types
from collections.abc import Callable, Mapping
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


WIDTH = 79
_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("application/pdf", "_repr_pdf_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)


def plain(value: object) -> str:
    """Format a value as text, with long containers on several lines."""
    if isinstance(value, type) and type(value).__repr__ is type.__repr__:
        return value.__qualname__ if value.__module__ == "builtins" else f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.FunctionType):
        return f"<function {value.__module__}.{value.__qualname__}{_signature(value)}>"
    text = repr(value)
    if len(text) > WIDTH and type(value) in (list, tuple, dict, set, frozenset):
        return pprint.pformat(value, width=WIDTH, sort_dicts=False)
    return text


def _signature(function: types.FunctionType) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return ""


def bundle(value: object) -> dict[str, Any]:
    """Return every representation of a value, by media type."""
    data: dict[str, Any] = {}
    several = _call(value, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(several, tuple):
        several = several[0]
    if isinstance(several, Mapping):
        data.update({kind: _portable(form) for kind, form in several.items()})
    data.setdefault("text/plain", plain(value))
    for kind, method in _METHODS:
        form = _call(value, method)
        if form is not None and kind not in data:
            data[kind] = _portable(form[0] if isinstance(form, tuple) else form)
    return data


def _portable(form: object) -> object:
    return base64.b64encode(form).decode() if isinstance(form, bytes) else form


def _call(value: object, method: str, **arguments: object) -> Any:
    if isinstance(value, type):
        return None
    found = getattr(value, method, None)
    if not callable(found):
        return None
    try:
        return found(**arguments)
    except NotImplementedError:
        return None


class _Displayable:
    """An object with its own media type; the data comes from an argument or a file."""

    def __init__(self, data: Any = None, url: str | None = None, filename: str | None = None, **_more: object) -> None:
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data if data is not None else url

    def __repr__(self) -> str:
        return f"<IPython.core.display.{type(self).__name__} object>"


def _kind(name: str, method: str, mime: str | None = None) -> type[_Displayable]:
    def form(self: _Displayable) -> object:
        return self.data.decode() if isinstance(self.data, bytes) and mime is None else self.data

    return type(name, (_Displayable,), {method: form, "__module__": "IPython.core.display"})


def _image_bundle(self: _Displayable, include: object = None, exclude: object = None) -> dict[str, object]:
    jpeg = isinstance(self.data, bytes) and self.data[:2] == b"\xff\xd8"
    return {"image/jpeg" if jpeg else "image/png": self.data, "text/plain": repr(self)}


def _json_form(self: _Displayable) -> object:
    return json.loads(self.data) if isinstance(self.data, str) else self.data


def display_module(show: Callable[[dict[str, Any]], None]) -> types.ModuleType:
    """Return a stand-in for `IPython.display`; `show` sends one bundle."""
    module = types.ModuleType("IPython.display", "A stand-in: no IPython runs these cells.")

    def display(*values: object, raw: bool = False, **_more: object) -> None:
        for value in values:
            show(dict(value) if raw and isinstance(value, Mapping) else bundle(value))

    def clear_output(wait: bool = False) -> None:
        """Do nothing visible: earlier output stays in the answer, as on the real server."""

    names: dict[str, object] = {
        "display": display,
        "clear_output": clear_output,
        "HTML": _kind("HTML", "_repr_html_"),
        "Markdown": _kind("Markdown", "_repr_markdown_"),
        "Latex": _kind("Latex", "_repr_latex_"),
        "SVG": _kind("SVG", "_repr_svg_"),
        "Javascript": _kind("Javascript", "_repr_javascript_"),
        "JSON": type("JSON", (_Displayable,), {"_repr_json_": _json_form}),
        "Image": type("Image", (_Displayable,), {"_repr_mimebundle_": _image_bundle}),
    }
    for name, thing in names.items():
        setattr(module, name, thing)
    return module


def install(show: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    """Make `import IPython.display` work without IPython; return its `display`."""
    module = display_module(show)
    parent = types.ModuleType("IPython", "A stand-in: no IPython runs these cells.")
    parent.__path__ = []
    setattr(parent, "display", module)  # noqa: B010  # a module has no such attribute for the type checker
    sys.modules["IPython"] = parent
    sys.modules["IPython.display"] = module
    shown: Callable[..., None] = module.__dict__["display"]
    return shown
