"""Drift: where two sandboxes, usually the fake and a real one, answer the same request
differently."""
