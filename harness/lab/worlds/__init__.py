"""Worlds: where a scenario runs. Each produces a journal, and the same promises check it."""
