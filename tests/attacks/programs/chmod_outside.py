"""A program cannot change permissions outside the request's directories.

Not promised: user-without-namespaces, bubblewrap (programs run as the server's user).
"""

import os

outside, rooms = os.environ["OUTSIDE"], os.environ["ROOMS"]
for path in (
    f"{outside}/file",
    f"{outside}/folder",
    outside,
    *(entry.path for entry in os.scandir(rooms)),
    rooms,
):
    mode = os.stat(path).st_mode & 0o7777
    for way in ("chmod", "fchmod"):
        try:
            target = path if way == "chmod" else os.open(path, os.O_RDONLY)
            os.chmod(target, mode ^ 0o001)
        except OSError:
            continue
        print("broken:", way, path)
print("held")
