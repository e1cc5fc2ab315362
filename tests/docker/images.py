"""Handmade images: layers, a config, and the archive that ``docker load`` reads."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
from collections.abc import Mapping, Sequence

REPOSITORY = f"sfusion-test-{os.getpid()}"
"""Of all images that tests make: the engine may serve another run at the same time."""


def image_archive(
    name: str, files: Mapping[str, bytes], command: Sequence[str], architecture: str
) -> bytes:
    """An image with one layer of executable files."""
    layer = tar_of(files)
    config = config_of([layer], command, architecture)
    about = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return tar_of({"layer.tar": layer, "config.json": config, "manifest.json": to_json(about)})


def config_of(layers: Sequence[bytes], command: Sequence[str], architecture: str) -> bytes:
    return to_json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": list(command)},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
    )


def elf_for(machine: int) -> bytes:
    """The header of a program for some processor, which is all the kernel reads if it is not this
    machine's."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, machine) + bytes(200)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A tar of executable files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return held.getvalue()


def digest(content: bytes) -> str:
    """The digest that a registry uses for this content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def to_json(data: object) -> bytes:
    return json.dumps(data).encode()
