"""Which formats there are, by the names that sglang's registry gives them."""

from __future__ import annotations

import difflib

from sfusion_tools.errors import UnknownFormatError

from .base import Format
from .deepseek import DeepSeekV3, DeepSeekV31
from .glm import Glm45
from .harmony import GptOss
from .hermes import Hermes, Qwen25
from .kimi import KimiK2
from .llama3 import Llama3
from .mistral import Mistral
from .pythonic import Pythonic
from .qwen3_coder import Qwen3Coder

__all__ = ["format_names", "get_format"]

_FORMATS: tuple[Format, ...] = (
    Hermes(),
    Qwen25(),
    Qwen3Coder(),
    Llama3(),
    Mistral(),
    DeepSeekV3(),
    DeepSeekV31(),
    Glm45(),
    KimiK2(),
    Pythonic(),
    GptOss(),
)
_BY_NAME = {name: form for form in _FORMATS for name in (form.name, *form.aliases)}


def format_names() -> tuple[str, ...]:
    """The names of all formats, without aliases."""
    return tuple(form.name for form in _FORMATS)


def get_format(name: str) -> Format:
    """The format called ``name``; raises UnknownFormatError, naming a near match, if there is none."""
    form = _BY_NAME.get(name) or _BY_NAME.get(name.lower().replace("-", "_"))
    if form is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownFormatError(
            f"There is no tool-call format {name!r}.{hint} The formats are: {', '.join(format_names())}."
        )
    return form
