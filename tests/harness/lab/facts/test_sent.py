"""What was sent is what was asked, as the server reads it."""

from __future__ import annotations

from typing import Any

from sfusion.harness.lab.facts.sent import field_differences, header_differences

ASKED: dict[str, Any] = {
    "code": "print(1)\n", "language": "cpp", "stdin": "in", "files": {"a": "YQ=="},
    "run_timeout": 7.5, "compile_timeout": 11.0, "memory_limit_MB": 512,
}  # fmt: skip


def test_what_was_asked_is_not_accused() -> None:
    assert list(field_differences(ASKED, {**ASKED, "memory_limit_MB": 512.0, "more": 1})) == []
    assert list(field_differences({"stdin": None, "files": {}}, {"stdin": ""})) == []
    assert (
        list(
            header_differences(
                {"X-A": "1"}, {"x-a": "1", "Content-Type": "application/json; charset=utf-8"}
            )
        )
        == []
    )


def test_every_field_that_differs_is_named() -> None:
    for name in ASKED:
        for body in (
            {**ASKED, name: "altered"},
            {key: value for key, value in ASKED.items() if key != name},
        ):
            assert [one.field for one in field_differences(ASKED, body)] == [name]
    assert [one.found for one in field_differences({"stdin": None}, {"stdin": "x"})] == ["x"]


def test_every_header_that_differs_is_named() -> None:
    found = header_differences({"X-A": "1"}, {"x-a": "2", "content-type": "text/plain"})
    assert [(one.field, one.found) for one in found] == [
        ("header X-A", "2"),
        ("content type", "text/plain"),
    ]
