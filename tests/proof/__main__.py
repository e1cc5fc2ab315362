from __future__ import annotations

from tests.proof.command import app

if __name__ == "__main__":
    app()
