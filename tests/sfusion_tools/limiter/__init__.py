"""Tests of the limiter."""
