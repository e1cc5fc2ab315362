"""Small bugs put into our own stack, one at a time: `sfusion run` must go red for nearly all of
them.

The test plays each in the one scenario that shows it. ``python -m tests.own_bugs`` plays each in
all of them.
"""
