"""The key ``tools``: settings of our own tool or a whole tool config, what a hunt sets there, and
its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from sfusion_tools.limiter.settings import DEFAULT_RATE_LIMIT
from sfusion_tools.sandbox.endpoints import redact

from ....fakes.fields import Drawn, NotHunted
from ..facts.canary import token
from .base import Data
from .drawing import Drawing

OWN_CLASSES = (
    "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
    "sfusion_tools.sandbox.tool.SandboxFusionTool",
)
HIDDEN = "<secret>"
REPLACED = {
    "sandbox_fusion_url": "the world provides the address",
    "limiter": "the world provides the limiter",
}
_SECRET_KEY = re.compile(r"key$|token|secret|passw|authorization|credential", re.IGNORECASE)
_USER_IN_URL = re.compile(r"^\w+://[^/@\s]+@")


def _set(*values: Any) -> Drawn:
    return Drawn(*values, when="tool_keys", share=0.35)


TOOL_KEYS: dict[str, Drawn | NotHunted] = {
    "rate_limit": Drawn(1, 2, 3, 4, 8),
    "enable_global_rate_limit": Drawn(False, when="no_limiter"),
    "requests_per_second": Drawn(2.0, 10.0, when="burst"),
    "requests_burst": Drawn(1, 4, when="burst"),
    "max_attempts": Drawn(1, 2, 3, 4, when="retries"),
    "retry_may_have_run": Drawn(False, when="retries", share=0.4),
    "headers": Drawn({"Authorization": "Bearer canary-7f3a9c"}, when="headers"),
    "default_timeout": _set(2.0, 5.0, 10.0),
    "max_timeout": _set(30.0, 45.0),
    "transport_margin": _set(1.013, 2.027),
    "permit_lease": _set(1.0, 3.0, 5.0),
    "adaptive_rate_limit": _set(True),
    "max_output_chars": _set(200, 300, 2000),
    "backoff_base": _set(0.2, 1.0),
    "backoff_cap": _set(1.0, 4.0),
    "call_deadline": _set(4.021, 30.041),
    "queue_timeout": _set(3.0, None),
    "total_timeout": _set(10.013, 60.029),
    "compile_timeout": _set(1.0),
    "memory_limit_mb": _set(256, -1),
    "max_response_mb": _set(0.05),
    **{key: NotHunted(why) for key, why in REPLACED.items()},
    **dict.fromkeys(("default_language", "languages"), NotHunted("programs name their language")),
    **dict.fromkeys(
        ("limiter_name", "limiter_share", "rate_limit_mismatch"), NotHunted("a case has one tool")
    ),
    **dict.fromkeys(("type", "num_workers"), NotHunted("without effect")),
    **dict.fromkeys(
        ("event_log", "ray_metrics", "tracing", "trust_proxy_env"),
        NotHunted("outside of a run in virtual time"),
    ),
    "score_provoked": NotHunted("changes what is scored, not what is sent"),
    "guard": NotHunted("what must hold of a call is not known while a guard refuses calls"),
}
"""How a hunt draws each key of our own tool's config, which itself knows nothing of hunts."""


def draw_tools(drawing: Drawing, _: Data) -> Data:
    tools: Data = {}
    for key, drawn in TOOL_KEYS.items():
        if isinstance(drawn, NotHunted):
            continue
        if drawing.tool_keys is not None and key not in drawing.tool_keys:
            continue
        if drawing.wants(drawn):
            tools[key] = drawing.random.choice(drawn.values)
    return tools


def simpler_tools(tools: Any) -> Iterator[Any]:
    """Yield tools with fewer settings; what is left out has its default."""
    if isinstance(tools, list):
        if len(tools) > 1:
            yield tools[:1]
        first = tools[0]
        for config in _simpler_config(first.get("config") or {}):
            yield [{**first, "config": config}, *tools[1:]]
    else:
        yield from _simpler_config(tools)


def _simpler_config(config: Data) -> Iterator[Data]:
    """Yield a config with fewer settings. The limit goes with the size of the load."""
    kept: Data = {}
    if config.get("rate_limit", DEFAULT_RATE_LIMIT) != DEFAULT_RATE_LIMIT:
        kept = {"rate_limit": config["rate_limit"]}
    if len(config) > len(kept) + 1:
        yield kept
    for left_out in config:
        if left_out not in kept:
            yield {key: value for key, value in config.items() if key != left_out}


CANARY = "{canary}"


def with_canaries(scenario: Data) -> Data:
    """Write out the canaries in the headers of a scenario's tools; they depend on its seed."""
    tools = scenario.get("tools")
    seed = scenario.get("seed", 0)
    if isinstance(tools, dict):
        return {**scenario, "tools": _written_out(tools, seed)}
    if not isinstance(tools, list) or not tools or not isinstance(tools[0], dict):
        return scenario
    config = _written_out(tools[0].get("config"), seed)
    first = {**tools[0], "config": config} if config else tools[0]
    return {**scenario, "tools": [first, *tools[1:]]}


def _written_out(config: Any, seed: int) -> Any:
    headers = config.get("headers") if isinstance(config, dict) else None
    if not isinstance(headers, dict):
        return config
    written = {
        name: value.replace(CANARY, token(seed, "header", name))
        if isinstance(value, str)
        else value
        for name, value in headers.items()
    }
    return {**config, "headers": written}


def is_own(entry: Data) -> bool:
    """Is the class of a tool config's entry our own?"""
    return entry.get("class_name") in OWN_CLASSES


def check_tool_keys(config: Data) -> None:
    """Check a mapping of tool keys against the tool's own model."""
    from sfusion_tools.errors import ConfigError
    from sfusion_tools.sandbox.config import SandboxToolConfig

    for key, why in REPLACED.items():
        if key in config:
            raise ValueError(f"{key} cannot be set in a scenario: {why}")
    try:
        SandboxToolConfig.read({"sandbox_fusion_url": "http://127.0.0.1:8080", **config}, "tools")
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("tools: ")) from None


def secrets_in(config: Any, name: str = "") -> dict[str, str]:
    """Return secrets by the name of their key: headers, keys that look secret, and credentials in
    URLs."""
    found: dict[str, str] = {}
    for key, value in _items(config):
        here = _below(name, key)
        if isinstance(value, str) and _is_secret(here, value):
            text = value
            if _USER_IN_URL.match(value):
                text = value.partition("://")[2].partition("@")[0]
            if text:
                found[here] = text
        else:
            found |= secrets_in(value, here)
    return found


def _items(config: Any) -> Iterable[tuple[Any, Any]]:
    """Return the values inside a mapping or a list, with their keys or numbers."""
    if isinstance(config, dict):
        return config.items()
    if isinstance(config, list):
        return enumerate(config)
    return ()


def _below(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def masked(config: Any, name: str = "") -> Any:
    """Return the config without its secrets, safe to write to a file."""
    if isinstance(config, dict):
        return {key: masked(value, _below(name, key)) for key, value in config.items()}
    if isinstance(config, list):
        return [masked(value, f"{name}.{number}") for number, value in enumerate(config)]
    if not isinstance(config, str):
        return config
    if _USER_IN_URL.match(config) or "sandbox_fusion_url" in name.split("."):
        return redact(config)
    return HIDDEN if _is_secret(name, config) else config


def _is_secret(name: str, value: str) -> bool:
    if CANARY in value:
        return False
    *owners, key = name.split(".")
    if "headers" in owners or _SECRET_KEY.search(key):
        return True
    return _USER_IN_URL.match(value) is not None
