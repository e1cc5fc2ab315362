"""What only the server's user may read cannot be read.

Named in user, user-without-namespaces, bubblewrap, unreachable-python: programs can read what the server can read.
"""

import os

try:
    print("broken:", open(os.environ["OUTSIDE"] + "/private").read())
except OSError:
    print("held")
