"""A program cannot read files that only the server's user may read.

Not promised: user, user-without-cgroup, user-without-namespaces, bubblewrap, unreachable-python
(programs have the read permissions of the server's user).
"""

import os

try:
    print("broken:", open(os.environ["OUTSIDE"] + "/private").read())
except OSError:
    print("held")
