"""No detour leads a change of permissions or times out of the request's directories."""

import os
import threading

target = os.environ["OUTSIDE"] + "/file"
folder = os.open(os.environ["OUTSIDE"], os.O_RDONLY)
opened = os.open(target, os.O_RDONLY)
os.symlink(target, "link")
os.symlink(os.environ["OUTSIDE"], "folder")
depth = "../" * os.getcwd().count("/")
for path, where in (
    ("link", None),
    ("folder/file", None),
    ("file", folder),
    (f"/proc/self/fd/{opened}", None),
    (f"/proc/thread-self/fd/{opened}", None),
    (f"/dev/fd/{opened}", None),
    (f"/proc/self/cwd/{depth}{target[1:]}", None),
):
    for attack in (lambda p, w: os.chmod(p, 0o600, dir_fd=w), lambda p, w: os.utime(p, (1, 1), dir_fd=w)):
        try:
            attack(path, where)
        except OSError:
            continue
        print("broken:", path)

open("own", "w").close()
done = threading.Event()


def swap():
    while not done.is_set():
        for there in ("own", target):
            os.symlink(there, "next")
            os.rename("next", "swapped")


os.symlink("own", "swapped")
swapping = threading.Thread(target=swap)
swapping.start()
for _ in range(300):
    try:
        os.chmod("swapped", 0o600)
    except OSError:
        continue
    if os.stat(target).st_mode & 0o777 == 0o600:
        print("broken: a race")
        break
done.set()
swapping.join()
print("held")
