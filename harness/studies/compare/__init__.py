"""Comparing recorded runs: what changed in settings, promises, outcomes, figures, texts and
events."""
