"""A program cannot lock a file of the server's user that is neither in a system directory nor named to programs.

Not promised: accident-proof (whoever may read a file may lock it; only a namespace hides files).
"""

import fcntl
import os

place = os.path.dirname(os.environ["OUTSIDE"])
for name in (*os.listdir(place), "lock"):
    if name != os.path.basename(os.environ["OUTSIDE"]) and name != os.path.basename(os.environ["ROOMS"]):
        try:
            file = open(os.path.join(place, name))
        except OSError:
            continue
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("broken: locked", name)
print("held")
