"""How much output of a program gets through the real server."""

PIPE_BYTES = 219_264
"""Where Sandbox Fusion silently cuts a single large write.

Up to twice as much is read and dropped.
"""
FULL_PIPE_BYTES = 131_072
"""Sandbox Fusion stops reading a stream above this.

So a program that writes more may block until its timeout.
"""
