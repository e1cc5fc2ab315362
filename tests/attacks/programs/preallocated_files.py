"""A file cannot take more of the disk than the bound on its size, even if its size stays small."""

# mutations: started directly

import ctypes
import fcntl
import os
import signal
import struct

KEEP_SIZE = 1
ZERO_RANGE = 0x10
INSERT_RANGE = 0x20
RESERVE = (0x40305828, 0x4030582A, 0x40305839)
"""ioctl: FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE."""
BLOCK = 512
"""Bytes that st_blocks counts in."""
bound = int(os.environ["FILE_SIZE"])
size = 3 * bound
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def tried(how, attempt):
    with open("large", "wb") as file:
        file.write(bytes(4096))
        file.flush()
        try:
            attempt(file.fileno())
        except OSError:
            pass
        found = os.fstat(file.fileno())
        if found.st_blocks * BLOCK > bound or found.st_size > bound:
            print("broken:", how, found.st_blocks * BLOCK, "of", bound, "bytes")
    os.unlink("large")


def allocate(mode):
    def attempt(file):
        offset = 0 if mode == INSERT_RANGE else 4096
        libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(size))

    return attempt


def reserve(request):
    # Kind, whence, start, length, and what the kernel does not look at.
    space = struct.pack("hhqqiI16x", 0, 0, 0, size, 0, 0)
    return lambda file: fcntl.ioctl(file, request, space)


for mode in (0, KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE, INSERT_RANGE):
    tried(f"fallocate {mode:#x}", allocate(mode))
for request in RESERVE:
    tried(f"ioctl {request:#x}", reserve(request))
print("held")
