"""Sweeps: a grid of settings played in world sim, the figures of each, and the setting to
recommend."""
