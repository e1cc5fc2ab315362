"""Tests with real containers; skipped with the reason if no engine answers."""
