"""Promises of the limiter."""
