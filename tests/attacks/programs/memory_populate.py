"""Memory stays within its limit while threads hold the kernel's lock on the mappings.

Not promised: accident-proof (only a cgroup counts it).
"""

import mmap
import os
import threading

MAP_POPULATE = 0x8000


def fight():
    while True:
        mmap.mmap(-1, 4096).close()


for _ in range(4):
    threading.Thread(target=fight, daemon=True).start()
kept = mmap.mmap(
    -1, 2 * int(os.environ["MEMORY"]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE
)
kept[::4096] = b"x" * (len(kept) // 4096)
print("broken: twice the bound is mapped", len(kept), flush=True)
os._exit(0)
