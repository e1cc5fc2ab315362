"""Probes: requests that show how a sandbox answers, and recordings of the answers."""
