"""The many events of a pull become a few lines of progress over all layers."""

from __future__ import annotations

from typing import Any

from sfusion.harness.real.targets.docker_engine import PullProgress


def event(
    layer: str, status: str, current: int | None = None, total: int | None = None
) -> dict[str, Any]:
    detail: dict[str, int | None] = {} if current is None else {"current": current, "total": total}
    return {"id": layer, "status": status, "progressDetail": detail}


def test_layers_are_summed_up() -> None:
    progress = PullProgress("sandbox:1")
    for one in (
        {"status": "Pulling from sandbox", "id": "1"},
        event("a", "Pulling fs layer"),
        event("b", "Already exists"),
        event("c", "Pulling fs layer"),
        event("a", "Downloading", 2**20, 4 * 2**20),
        event("c", "Downloading", 2**20, 6 * 2**20),
        {"status": "Digest: sha256:0"},
    ):
        progress.update(one, now=0)
    assert progress.text == "pulling sandbox:1: 1 of 3 layers, 2 MiB of 10 MiB"
    progress.update(event("a", "Verifying Checksum"), now=0)
    progress.update(event("a", "Extracting", 1, 100), now=0)
    assert progress.text == "pulling sandbox:1: 1 of 3 layers, 5 MiB of 10 MiB"
    progress.update(event("a", "Pull complete"), now=0)
    assert progress.text == "pulling sandbox:1: 2 of 3 layers, 5 MiB of 10 MiB"


def test_progress_lines_are_rate_limited_and_never_repeated() -> None:
    progress = PullProgress("sandbox:1")
    lines = [
        progress.update(
            event("a", "Downloading", at * 2**20, 600 * 2**20), now=at / 100
        )  # a hundred events a second
        for at in range(600)
    ]
    assert [line for line in lines if line] == [
        "pulling sandbox:1: 0 of 1 layers, 0 bytes of 600 MiB",
        "pulling sandbox:1: 0 of 1 layers, 500 MiB of 600 MiB",
    ]
    for later in (100.0, 200.0):
        news = progress.update(event("a", "Downloading", 599 * 2**20, 600 * 2**20), now=later)
        assert (news is not None) == (later == 100.0)
