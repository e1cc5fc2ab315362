"""Fuzz one target with coverage feedback: ``python -m tests.fuzz.with_atheris TARGET
[-max_total_time=60] [CORPUS]``.

Needs ``pip install atheris``. Exits with a traceback, and the input in a file ``crash-…``, if a
target raises.
"""

from __future__ import annotations

import sys


def main() -> None:
    import atheris  # type: ignore[import-not-found,unused-ignore] # not a dependency: only this script uses it

    names = sys.argv[1:2]
    with atheris.instrument_imports(include=["sfusion", "sfusion_tools", "yaml"]):
        from tests.fuzz.targets import TARGETS
    if not names or names[0] not in TARGETS:
        raise SystemExit(f"give a target: {', '.join(TARGETS)}")
    target = TARGETS[names[0]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: target(data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
