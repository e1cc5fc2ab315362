"""What the processes of a machine's limiter agree on, and the bytes of its file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sfusion_tools.errors import ConfigError, LimiterError, ProtocolMismatch
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.limiter.ray_limiter import LimiterChoice
from sfusion_tools.limiter.slots import FOLDER, FORMAT, Rules, SlotFile, slot_folder

PACED = LimiterSettings(4, per_second=2.0, burst=3, adaptive=True)


@pytest.fixture
def file(tmp_path: Path) -> SlotFile:
    return SlotFile(tmp_path / "x.slots")


def test_what_was_written_is_read_again() -> None:
    rules = Rules(PACED, 100.0)
    assert rules.take_token(100.0)
    rules.adapt(100.0, succeeded=0, throttled=1)
    again = Rules.read(rules.text())
    assert (again.settings, again.width, again.text()) == (PACED, 2, rules.text())


def test_tokens_return_with_time_and_are_not_saved_up_beyond_the_burst() -> None:
    rules = Rules(PACED, 100.0)
    assert [rules.take_token(100.0) for _ in range(4)] == [True, True, True, False]
    assert [Rules.read(rules.text()).take_token(at) for at in (100.4, 100.5)] == [False, True]
    assert [rules.take_token(200.0) for _ in range(4)] == [True, True, True, False]


def test_a_429_among_successes_narrows_too() -> None:
    rules = Rules(PACED, 100.0)
    rules.adapt(100.0, succeeded=3, throttled=1)
    assert rules.width == 2


def test_successes_widen_what_a_429_has_narrowed() -> None:
    rules = Rules(PACED, 100.0)
    rules.adapt(100.0, succeeded=0, throttled=1)
    assert rules.width == 2
    rules.adapt(100.5, succeeded=0, throttled=1)
    assert rules.width == 2, "it belongs to the same overload"
    rules.adapt(101.0, succeeded=2, throttled=0)
    assert rules.width == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x80\x05K\x01.",
        b"[]",
        b"7",
        json.dumps({"format": FORMAT}).encode(),
        json.dumps({"format": FORMAT, "settings": {"rate_limit": 0}, "span": 1}).encode(),
        json.dumps({"format": FORMAT, "settings": {"nonsense": 1}, "span": 1}).encode(),
        json.dumps({"format": FORMAT, "settings": {"rate_limit": 1}, "span": 10**9}).encode(),
    ],
)
def test_a_damaged_file_is_refused(file: SlotFile, text: bytes) -> None:
    file.path.write_bytes(text)
    with pytest.raises(LimiterError, match=r"x\.slots holds no rules of a limiter"):
        file.read()


def test_another_format_is_named(file: SlotFile) -> None:
    file.path.write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(ProtocolMismatch, match=f"format {FORMAT + 1}, here {FORMAT}"):
        file.read()


def test_only_its_user_may_open_the_file(file: SlotFile) -> None:
    assert os.stat(file.path).st_mode & 0o777 == 0o600


def test_the_file_is_not_looked_for_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "y.slots").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        SlotFile(tmp_path / "y.slots")


class TestFolder:
    """Where the files are."""

    def test_it_is_made_for_its_user_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(FOLDER, str(tmp_path / "a" / "b"))
        assert slot_folder().stat().st_mode & 0o777 == 0o700

    def test_without_the_variable_it_is_that_of_the_session_or_of_the_user(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(FOLDER, raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert slot_folder() == tmp_path / "sfusion"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert slot_folder() == tmp_path / f"sfusion-{os.getuid()}"

    @pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
    def test_a_folder_that_others_may_use_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
    ) -> None:
        folder = tmp_path / "my slots"
        folder.mkdir()
        folder.chmod(mode)
        monkeypatch.setenv(FOLDER, str(folder))
        (folder / "0a.slots").touch()
        with pytest.raises(ConfigError, match=f"run `chmod 700 '{folder}'`"):
            LimiterChoice(LimiterSettings(1), kind="host", name="x")

    @pytest.mark.parametrize("others_need_it", ["it has other files", "it is sticky"])
    def test_nobody_is_told_to_lock_others_out_of_a_folder_that_they_need(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others_need_it: str
    ) -> None:
        """``SFUSION_LIMITER_DIR=/tmp`` led to the advice to run ``chmod 700 /tmp``."""
        tmp_path.chmod(0o1777 if others_need_it == "it is sticky" else 0o755)
        if others_need_it == "it has other files":
            (tmp_path / "theirs").touch()
        monkeypatch.setenv(FOLDER, str(tmp_path))
        with pytest.raises(ConfigError) as refused:
            LimiterChoice(LimiterSettings(1), kind="host", name="x")
        assert str(refused.value) == (
            f"limiter: host: others may use {tmp_path}; set {FOLDER} to a folder of its own, such "
            f"as {tmp_path}/sfusion-{os.getuid()}"
        )

    def test_a_folder_that_cannot_be_written_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(FOLDER, str(tmp_path))
        tmp_path.chmod(0o500)
        if os.getuid() == 0:  # who may write it all the same, but not on a read-only file system
            monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(ConfigError, match=f"{tmp_path} cannot be written; set {FOLDER}"):
            LimiterChoice(LimiterSettings(1), kind="host", name="x")

    def test_a_path_that_cannot_be_a_folder_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "folder"))
        with pytest.raises(ConfigError, match="cannot be used: Not a directory"):
            LimiterChoice(LimiterSettings(1), kind="host", name="x")
