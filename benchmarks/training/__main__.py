from __future__ import annotations

from benchmarks.training.command import app

if __name__ == "__main__":
    app()
