"""Secret memory (memfd_secret) stays within the limit, even when it is no longer mapped."""

import ctypes
import os

MEMFD_SECRET, WINDOW = 447, 2**20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size = 2 * int(os.environ["MEMORY"])
secret = libc.syscall(MEMFD_SECRET, 0)
if secret >= 0:
    os.ftruncate(secret, size)
    for offset in range(0, size, WINDOW):
        found = libc.mmap(None, WINDOW, 3, 1, secret, offset)
        if found in (None, 2**64 - 1):
            break
        ctypes.memset(found, 1, WINDOW)
        libc.munmap(found, WINDOW)
    else:
        print("broken: secret memory of", size, "bytes")
print("held")
