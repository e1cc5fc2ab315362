"""How long tests wait for what a working machine does in a moment."""

PATIENCE = 300.0
"""Seconds until a test gives up a process, a thread or a connection.

Success ends such a wait, so a long one costs nothing. Chosen: with sixty processes on two cores a
process that needs two seconds for itself takes a minute, and pytest ends a test after 600 seconds.
"""
