"""A program of a root server cannot make a file that runs as root.

Not promised: bubblewrap (the server cannot give its programs another user).
"""

import os


def outer(inner):
    for line in open("/proc/self/uid_map"):
        start, there, count = map(int, line.split())
        if start <= inner < start + count:
            return there + inner - start
    return inner


open("run-as-root", "w").close()
os.chmod("run-as-root", 0o4755)
found = os.stat("run-as-root")
if found.st_mode & 0o4000 and outer(found.st_uid) == 0 and os.environ["SERVER_UID"] == "0":
    print("broken: a setuid file of root")
print("held")
