"""Finds and masks secrets in a tool's config."""

from __future__ import annotations

import re
from typing import Any

from sfusion_tools.sandbox.endpoints import redact

HIDDEN = "<secret>"
_SECRET_KEY = re.compile(r"key$|token|secret|passw|authorization|credential", re.IGNORECASE)
_USER_IN_URL = re.compile(r"^\w+://[^/@\s]+@")


def secrets_in(config: Any, name: str = "") -> dict[str, str]:
    """Return secrets by the name of their key: headers, keys that look secret, and credentials in URLs."""
    found: dict[str, str] = {}
    items = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in items:
        here = f"{name}.{key}" if name else str(key)
        if isinstance(value, str) and _is_secret(here, value):
            text = value.partition("://")[2].partition("@")[0] if _USER_IN_URL.match(value) else value
            if text:
                found[here] = text
        else:
            found |= secrets_in(value, here)
    return found


def masked(config: Any, name: str = "") -> Any:
    """Return the config without its secrets, safe to write to a file."""
    if isinstance(config, dict):
        return {key: masked(value, f"{name}.{key}" if name else str(key)) for key, value in config.items()}
    if isinstance(config, list):
        return [masked(value, f"{name}.{number}") for number, value in enumerate(config)]
    if not isinstance(config, str):
        return config
    if _USER_IN_URL.match(config) or "sandbox_fusion_url" in name.split("."):
        return redact(config)
    return HIDDEN if _is_secret(name, config) else config


def _is_secret(name: str, value: str) -> bool:
    parts = name.split(".")
    return "headers" in parts[:-1] or bool(_SECRET_KEY.search(parts[-1])) or bool(_USER_IN_URL.match(value))
