"""Proxy variables of the environment: which of them would catch a request to the sandbox."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """True for this machine itself; 0.0.0.0 as a destination means it too."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment sets for this URL, None for loopback and for what NO_PROXY exempts."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if is_loopback(host) or _exempt(host, parts.port, _variable(environ, "no_proxy")):
        return None
    proxy = _variable(environ, f"{parts.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _exempt(host: str, port: int | None, no_proxy: str) -> bool:
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
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
