"""Tests of the commands about scenarios: what they print, what they write and their exit codes."""
