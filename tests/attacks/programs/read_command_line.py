"""A program cannot see the server's command line.

Not promised: root-without-namespaces, user-without-namespaces (only a namespace hides other
processes).
"""

import os

try:
    print("broken:", open(f"/proc/{os.environ['SERVER']}/cmdline").read().replace("\0", " "))
except OSError:
    pass
print("held")
