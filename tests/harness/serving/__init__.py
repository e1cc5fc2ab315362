"""Tests of the commands that serve, and of the limiter."""
