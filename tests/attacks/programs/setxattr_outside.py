"""A program cannot change extended attributes outside the request's directories."""

import os

outside = os.environ["OUTSIDE"]
for path in (f"{outside}/file", f"{outside}/open-to-all", f"{outside}/folder"):
    for target in (path, os.open(path, os.O_RDONLY)):
        for name, attack in (
            ("set", lambda it: os.setxattr(it, "user.attack", b"x")),
            ("remove", lambda it: os.removexattr(it, "user.precious")),
        ):
            try:
                attack(target)
            except OSError:
                continue
            print("broken:", name, path)
print("held")
