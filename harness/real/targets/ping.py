"""Does anything answer at an address?"""

from __future__ import annotations

import os
import urllib.request
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit

from sfusion_tools.sandbox.endpoints import basic_auth, proxy_for

PING = "/v1/ping"


def why_unreachable(url: str, timeout: float) -> str | None:
    """Return None if the address gives any HTTP answer, otherwise the reason in a few words."""
    try:
        _status(url, timeout)
    except (HTTPException, OSError) as error:
        return _reason(error)
    return None


def is_ready(url: str, timeout: float) -> bool:
    """Does the ping return 200?"""
    try:
        return _status(url, timeout) == 200
    except (HTTPException, OSError):
        return False


def _status(url: str, timeout: float) -> int:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    address = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + PING, parts.query, ""))
    request = urllib.request.Request(address, headers={"Accept": "application/json"})
    if login := basic_auth(parts):
        request.add_header("Authorization", login)
    proxy = proxy_for(address, os.environ)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({parts.scheme: proxy} if proxy else {}))
    try:
        with opener.open(request, timeout=timeout) as answer:
            return int(answer.status)
    except HTTPError as refused:
        with refused:
            return refused.code


def _reason(error: BaseException) -> str:
    while isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
