"""Nothing outside the request's directories changes its times.

Not promised: root-without-namespaces, user-without-namespaces (of files that the program's user may write).
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
