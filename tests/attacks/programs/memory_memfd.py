"""A memory file (memfd) counts as memory even if no process has mapped it.

Not promised: accident-proof (only a cgroup counts it).
"""

import os
import signal

descriptors = [os.memfd_create(str(number)) for number in range(4)]
for _ in range(0, 2 * int(os.environ["MEMORY"]), 4 * 2**20):
    for descriptor in descriptors:
        os.write(descriptor, b"x" * 2**20)
print("twice the bound is in use, until it is killed", flush=True)
signal.pause()
