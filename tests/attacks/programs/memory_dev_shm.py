"""A deleted file in /dev/shm counts as memory.

Not promised: accident-proof (only a cgroup counts it).
"""

import os
import signal

file = open(f"/dev/shm/{os.environ['SHARED_NAME']}memory", "wb", buffering=0)
os.unlink(file.name)
try:
    for _ in range(0, 2 * int(os.environ["MEMORY"]), 2**20):
        file.write(b"x" * 2**20)
except OSError as full:
    print("held:", full)
else:
    print("twice the bound is in use, until it is killed", flush=True)
    signal.pause()
