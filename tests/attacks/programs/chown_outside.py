"""A program cannot change owners outside the request's directories."""

import os

outside = os.environ["OUTSIDE"]
for path in (f"{outside}/file", f"{outside}/folder"):
    try:
        os.chown(path, os.getuid(), os.getgid())
    except OSError:
        continue
    print("broken:", path)
print("held")
