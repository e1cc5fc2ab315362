"""Dumps for the tests of the viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SYSTEM = "system\nYou are a math expert.\n\n# Tools\n<tools>\n{}\n</tools>\n"
CALL = (
    '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "x = '
    '2\\nprint(x)"}}\n</tool_call>'
)


def record(
    question: str, answer: str = "4", score: float = 1, step: int = 1, **more: Any
) -> dict[str, Any]:
    """A line as verl dumps it."""
    return {
        "input": f"{SYSTEM}user\n{question}\nassistant\n",
        "output": (
            "assistant\n<think>\nI "
            f"compute.\n</think>\n\n{CALL}\ntool\n{answer}\n\nassistant\n#### {answer}"
        ),
        "score": score,
        "step": step,
        **more,
    }


def write(path: Path, records: list[Any]) -> Path:
    """Write a dump; strings are written as they are, for malformed lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [item if isinstance(item, str) else json.dumps(item) for item in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
