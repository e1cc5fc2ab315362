"""A program cannot change file times outside the request's directories.

Not promised: root-without-namespaces, user-without-namespaces (it can change those of files that
its user may write).
"""

import os

outside = os.environ["OUTSIDE"]
for path in (f"{outside}/file", f"{outside}/open-to-all", f"{outside}/folder"):
    for times in ((1, 1), None):  # anyone who may write to a file may set its times to now
        for target in (path, os.open(path, os.O_RDONLY)):
            try:
                os.utime(target, times)
            except OSError:
                continue
            print("broken:", path, times)
print("held")
