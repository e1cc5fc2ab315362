"""A program cannot make read-only files writable by making a user namespace."""

import os
import subprocess

outside = os.environ["OUTSIDE"]
for attempt in (
    "mount -o remount,rw,bind /",
    f"mount -o remount,rw,bind {outside}",
    "umount /tmp",
    "true",
):
    touch = (
        f"{{ touch {outside}/open-to-all || touch -d @1 {outside}/file; }} && echo "
        f"broken: {attempt}"
    )
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", f"{attempt}; {touch}"], capture_output=True, text=True
    )
    print(done.stdout, end="")
print("held")
