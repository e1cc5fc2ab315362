"""A program cannot lock files of the server's user, except in system directories and in paths that
`path` and `env` name.

Not promised: accident-proof (a program that can read a file can lock it; only a namespace hides
files).
"""

import fcntl
import os

place = os.path.dirname(os.environ["OUTSIDE"])
for name in (*os.listdir(place), "lock"):
    if name != os.path.basename(os.environ["OUTSIDE"]) and name != os.path.basename(
        os.environ["ROOMS"]
    ):
        try:
            file = open(os.path.join(place, name))
        except OSError:
            continue
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("broken: locked", name)
print("held")
