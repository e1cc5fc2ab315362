"""Which proxy the environment sets for requests to a sandbox."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from sfusion_tools.hosts import is_this_machine


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment sets for this URL; None for loopback and for hosts in NO_PROXY."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if is_this_machine(host) or _exempt(host, port, proxy_variable(environ, "no_proxy")):
        return None
    proxy = proxy_variable(environ, f"{parts.scheme}_proxy") or proxy_variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_usable(proxy: str) -> bool:
    """True for HTTP and HTTPS proxies; False for SOCKS and for values that are not URLs."""
    try:
        parts = urlsplit(proxy)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def proxy_variable(environ: Mapping[str, str], name: str) -> str:
    """Look up a variable in lower case, then in upper case."""
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _exempt(host: str, port: int, no_proxy: str) -> bool:
    for entry in re.split(r"[,\s]+", no_proxy.lower()):
        if not entry:
            continue
        if entry == "*":
            return True
        name, _, wanted_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
        if wanted_port and wanted_port != str(port):
            continue
        if _in_network(host, name):
            return True
        name = name.removeprefix("*").lstrip(".")
        if host == name or host.endswith(f".{name}"):
            return True
    return False


def _in_network(host: str, entry: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
