"""``python -m sfusion`` is the command ``sfusion``."""

from sfusion.harness.cli import main

main()
