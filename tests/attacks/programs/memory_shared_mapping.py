"""An anonymous shared mapping counts as memory.

Not promised: accident-proof (only a cgroup counts it).
"""

import mmap
import os
import signal

size = 2 * int(os.environ["MEMORY"])
mapping = mmap.mmap(-1, size)
for at in range(0, size, 2**20):
    mapping[at : at + 2**20] = b"x" * 2**20
print("twice the bound is in use, until it is killed", flush=True)
signal.pause()
