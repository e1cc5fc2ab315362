"""Targets: everything about them that needs no container engine."""
