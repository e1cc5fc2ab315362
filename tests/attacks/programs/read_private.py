"""What only the server's user may read cannot be read.

Not promised: user, user-without-cgroup, user-without-namespaces, bubblewrap, unreachable-python (programs read as the
server's user).
"""

import os

try:
    print("broken:", open(os.environ["OUTSIDE"] + "/private").read())
except OSError:
    print("held")
