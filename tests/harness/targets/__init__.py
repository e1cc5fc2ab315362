"""Targets as they are typed, and all about them that needs no container engine."""
