"""Files in /tmp count as memory if /tmp is in memory.

Not promised: accident-proof (only a cgroup counts it).
"""

import os

here = os.statvfs("/tmp")
small_disk = (
    here.f_blocks * here.f_frsize <= 2**30
)  # the tmpfs of the server that attacks run against
with open("/tmp/big", "wb", buffering=0) as file:
    for _ in range(0, 2 * int(os.environ["MEMORY"]), 2**20):
        file.write(b"x" * 2**20)
print("broken: twice the bound is in /tmp" if small_disk else "held: /tmp is on a disk")
