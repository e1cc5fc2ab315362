"""Tests of the commands: what they print, what they write and their exit codes."""
