"""A System V segment counts as memory and is gone after the request.

Not promised: accident-proof (only a cgroup counts it).
"""

import ctypes
import os
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
half = int(os.environ["MEMORY"]) * 3 // 4
for number in range(2):
    segment = libc.shmget(int(os.environ["SHARED_KEY"]) + number, ctypes.c_size_t(half), 0o1600)
    if segment < 0:
        print("held:", os.strerror(ctypes.get_errno()))
        sys.exit()
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, half)
    libc.shmdt(ctypes.c_void_p(address))
print("more than the bound is in use, until it is killed", flush=True)
signal.pause()
