"""A minimal registry on loopback; engines pull from 127.0.0.1 without TLS."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.docker.images import config_of, digest, tar_of, to_json

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """Stores images by tag and answers the requests of a pull."""

    def __init__(self) -> None:
        self.address = ""
        self.pulls = 0
        """How often the manifest of a tag was fetched."""
        self._things: dict[str, tuple[str, bytes]] = {}
        self._refusal = b""

    def image(self, tag: str, layers: list[bytes], architecture: str) -> str:
        """Add an image whose layers contain one file each; return its digest.

        It is like no image of another registry: an engine has one of each, and another run may be
        removing that.
        """
        own = self.address.encode()
        tars = [tar_of({f"layer-{number}": own + content}) for number, content in enumerate(layers)]
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._put(_CONFIG, config_of(tars, ["/bin/true"], architecture)),
            "layers": [self._put(_LAYER, gzip.compress(tar, mtime=0)) for tar in tars],
        }
        one = self._put(_MANIFEST, to_json(manifest))
        platform = {"platform": {"architecture": architecture, "os": "linux"}}
        both = {"schemaVersion": 2, "mediaType": _LIST, "manifests": [one | platform]}
        self._things[tag] = (_LIST, to_json(both))
        return str(self._put(_LIST, to_json(both))["digest"])

    def refuse(self, message: str) -> None:
        """From now on, deny every request with this message."""
        self._refusal = to_json({"errors": [{"code": "DENIED", "message": message}]})

    def spoil_layers(self) -> None:
        """From now on, serve layers that do not match their digest."""
        self._things = {
            name: (kind, content[::-1] if kind == _LAYER else content)
            for name, (kind, content) in self._things.items()
        }

    def _put(self, kind: str, content: bytes) -> dict[str, Any]:
        self._things[digest(content)] = (kind, content)
        return {"mediaType": kind, "size": len(content), "digest": digest(content)}

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        if path == "/v2/":
            return 200, "application/json", b"{}"
        if self._refusal:
            return 403, "application/json", self._refusal
        name = path.rpartition("/")[2]
        if name not in self._things:
            return (
                404,
                "application/json",
                to_json({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "unknown tag"}]}),
            )
        self.pulls += not name.startswith("sha256:")
        return 200, *self._things[name]


@contextmanager
def registry() -> Iterator[Registry]:
    """Run a registry inside the block."""
    held = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = held.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held.address = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield held
        finally:
            server.shutdown()
            thread.join()
