"""``python -m harness`` is ``sfusion``."""

from harness.cli import main

main()
