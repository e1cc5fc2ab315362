"""Right clients that only the wall clock can play: in threads, and on httpx."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import requests

httpx: Any = import_module("httpx2" if find_spec("httpx2") else "httpx")
ATTEMPTS = 3
_LONGEST_WAIT = 30.0
_TLS = ssl.create_default_context()
"""Shared: to make one takes a moment of processor time, which no clock can shorten."""


class Lost(Exception):
    """The sandbox failed: nothing is known of the program."""


def _wait(status: int, headers: Mapping[str, str], number: int) -> float:
    """Return how long to wait before the next attempt; raise Lost if none is due."""
    what = {429: "it is too busy", 503: "it is not available"}.get(status, f"it answered {status}")
    after = headers.get("Retry-After", "0")
    try:
        asked = float(after)
    except ValueError:
        asked = max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    if status not in (429, 503) or number == ATTEMPTS or asked > _LONGEST_WAIT:
        raise Lost(what)
    return asked + random.uniform(0.5, 1.0) * number


def _told(body: bytes) -> str:
    try:
        answer = json.loads(body)
        if answer["status"] == "SandboxError":
            raise Lost("it failed by itself")
        part, word = answer["run_result"], "ended"
        if answer["compile_result"] and answer["compile_result"]["return_code"] != 0:
            part, word = answer["compile_result"], "not compiled"
        if part["status"] == "TimeLimitExceeded":
            word = f"{word}, too slow"
        elif part["status"] != "Finished":
            raise Lost(f"the run was {part['status']}")
        printed = f"stdout:\n{part['stdout'] or ''}\nstderr:\n{part['stderr'] or ''}"
        return f"{word}, code {part['return_code']}\n{printed}"
    except (ValueError, KeyError, TypeError):
        raise Lost("its answer could not be read") from None


class Threaded:
    """As many threads as requests may be in flight; ``run`` may be called from any number of
    others."""

    def __init__(self, base_url: str, headers: dict[str, str], rate_limit: int = 10) -> None:
        self._url, self._headers = f"{base_url}/run_code", headers
        self._threads = ThreadPoolExecutor(rate_limit)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def run(
        self,
        code: str,
        language: str = "python",
        stdin: str | None = None,
        run_timeout: float = 10.0,
    ) -> str:
        body = {"code": code, "language": language, "stdin": stdin, "run_timeout": run_timeout}
        for number in range(1, ATTEMPTS + 1):
            status, headers, content = self._threads.submit(self._send, body).result()
            if status == 200:
                return _told(content)
            time.sleep(_wait(status, headers, number))
        raise AssertionError

    def _send(self, body: dict[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        try:
            answer = requests.post(
                self._url, json=body, headers=self._headers, timeout=body["run_timeout"] + 20.0
            )
        except requests.exceptions.ReadTimeout:
            raise Lost("it did not answer in time, and may have run the program") from None
        except requests.exceptions.ConnectionError as error:
            raise Lost(f"no connection: {type(error).__name__}") from None
        except requests.RequestException:
            raise Lost("its answer broke off") from None
        return answer.status_code, answer.headers, answer.content


async def on_httpx(
    base_url: str,
    code: str,
    language: str = "python",
    stdin: str | None = None,
    run_timeout: float = 10.0,
) -> str:
    """Asynchronous, but not on asyncio's transports."""
    body = {"code": code, "language": language, "stdin": stdin, "run_timeout": run_timeout}
    for number in range(1, ATTEMPTS + 1):
        try:
            async with httpx.AsyncClient(timeout=run_timeout + 20.0, verify=_TLS) as client:
                answer = await client.post(f"{base_url}/run_code", json=body)
        except httpx.HTTPError as error:
            raise Lost(f"{type(error).__name__} on the way") from None
        if answer.status_code == 200:
            return _told(answer.content)
        await asyncio.sleep(_wait(answer.status_code, answer.headers, number))
    raise AssertionError


class InOneThread:
    """Sends and waits in the thread in which it is called."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}/run_code"

    def run(
        self,
        code: str,
        language: str = "python",
        files: dict[str, bytes] | None = None,
        run_timeout: float = 10.0,
    ) -> str:
        body = {"code": code, "language": language, "run_timeout": run_timeout}
        body["files"] = {name: self.encoded(content) for name, content in (files or {}).items()}
        for number in range(1, ATTEMPTS + 1):
            try:
                answer = requests.post(self._url, json=body, timeout=run_timeout + 20.0)
            except requests.RequestException as error:
                raise Lost(f"no answer: {type(error).__name__}") from None
            if answer.status_code == 200:
                return _told(answer.content)
            self.pause(_wait(answer.status_code, answer.headers, number), answer)
        raise AssertionError

    def encoded(self, content: bytes) -> str:
        return base64.b64encode(content).decode()

    def pause(self, seconds: float, answer: requests.Response) -> None:
        time.sleep(seconds)


class NeverPauses(InOneThread):
    def pause(self, seconds: float, answer: requests.Response) -> None:
        if "Retry-After" in answer.headers:
            super().pause(seconds, answer)


class SendsFilesAsText(InOneThread):
    def encoded(self, content: bytes) -> str:
        return content.decode(errors="replace")


WALL_TOOLS: dict[str, Any] = {"threads": Threaded, "httpx": on_httpx, "one thread": InOneThread}
WALL_MISTAKES: dict[str, tuple[Any, str]] = {
    "it comes back at once where nothing says for how long to wait": (NeverPauses, "failures"),
    "files are sent as text": (SendsFilesAsText, "programs"),
}
"""Mistakes that only clients on the wall clock make, and the scene that shows each."""
