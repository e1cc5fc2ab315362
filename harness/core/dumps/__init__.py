"""Rollout dumps of trainings: their samples, and how they are written."""
