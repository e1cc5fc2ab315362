"""Tests of the sandbox client."""
