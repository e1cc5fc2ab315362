from __future__ import annotations

from benchmarks.command import app

if __name__ == "__main__":
    app()
