"""The server's command line is invisible.

Named in root-without-namespaces, user-without-namespaces: command lines of other processes can be read.
"""

import os

try:
    print("broken:", open(f"/proc/{os.environ['SERVER']}/cmdline").read().replace("\0", " "))
except OSError:
    pass
print("held")
