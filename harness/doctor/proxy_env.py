"""Which proxy from the environment each client would use for a URL.

`requests`, which verl's tool and reward use, differs from our client: it sends even loopback through a proxy, and
understands neither ``*.name`` nor IPv6 networks in NO_PROXY.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from sfusion.harness.doctor.settings import Client, SandboxSettings
from sfusion_tools.sandbox.endpoints import SHORTEST_PASSWORD, is_usable, proxy_for, proxy_variable


def proxy_of_requests(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the library `requests` would use."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = f":{parts.port}" if parts.port else ""
    if _exempt(host, port, proxy_variable(environ, "no_proxy")):
        return None
    proxy = proxy_variable(environ, f"{parts.scheme}_proxy") or proxy_variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def proxy_of(settings: SandboxSettings, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the sandbox's client would use; for an unknown client, the one sfusion would use."""
    if settings.client is Client.VERL:
        proxy = proxy_of_requests(settings.base, environ)
    else:
        proxy = proxy_for(settings.base, environ) if settings.trust_proxy_env else None
    return proxy if proxy is not None and is_usable(proxy) else None


def secrets_of_proxies(environ: Mapping[str, str]) -> list[str]:
    proxies = [value for name, value in environ.items() if name.lower().endswith("_proxy")]
    return [password for value in proxies if len(password := _password(value)) >= SHORTEST_PASSWORD]


def _password(proxy: str) -> str:
    try:
        return urlsplit(proxy).password or ""
    except ValueError:
        return ""


def _exempt(host: str, port: str, no_proxy: str) -> bool:
    if no_proxy == "*":
        return True
    for entry in no_proxy.lower().replace(" ", "").split(","):
        name = entry.lstrip(".")
        if name and (name in (host, host + port) or host.endswith(f".{name}") or (host + port).endswith(f".{name}")):
            return True
        if "/" in entry and _holds(entry, host):
            return True
    return False


def _holds(network: str, host: str) -> bool:
    try:
        return ipaddress.IPv4Address(host) in ipaddress.IPv4Network(network, strict=False)
    except ValueError:
        return False
