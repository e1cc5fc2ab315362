"""Containers for real: these tests run where an engine answers, and say why where none does."""
