"""A program cannot lock the server out of its own directories.

Not promised: user-without-namespaces, bubblewrap (programs run as the server's user).
"""

import os

rooms = os.environ["ROOMS"]
for folder in (*(entry.path for entry in os.scandir(rooms)), rooms):
    try:
        os.chmod(folder, 0)
    except OSError:
        pass
print("held")  # what the next request says counts
