"""Page tables count as memory, even for pages that were only read.

Not promised: accident-proof (only a cgroup counts it).
"""

import ctypes
import os

PAGE, READ, PRIVATE_ANONYMOUS_NORESERVE = 4096, 1, 0x4022
STEP = 512 * PAGE
wanted = 2 * int(os.environ["MEMORY"]) // PAGE

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
start = libc.mmap(
    None, ctypes.c_size_t(wanted * STEP), READ, PRIVATE_ANONYMOUS_NORESERVE, -1, ctypes.c_long(0)
)
if start == ctypes.c_void_p(-1).value:
    print("held")
else:
    for number in range(wanted):  # each costs a table, which is a page, and no page of its own
        ctypes.string_at(start + number * STEP, 1)
    print("broken: has the tables of", wanted, "pages")
