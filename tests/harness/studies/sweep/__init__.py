"""Sweeps: axes, grid, recommendation, command."""
