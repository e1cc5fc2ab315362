"""Addresses and times that cannot be do not end the process that watches the program, and so its bounds."""

import ctypes
import os
import platform

libc = ctypes.CDLL(None, use_errno=True)
fchmodat, utimensat = {"x86_64": (268, 280), "aarch64": (53, 88)}[platform.machine()]
here = -100
open("file", "w").close()
os.chmod("file", 0o600)
for address in (1, 2**47, 2**63, 2**64 - 1):
    nowhere = ctypes.c_void_p(address)
    if libc.syscall(fchmodat, here, nowhere, 0o777, 0) == 0 or libc.syscall(utimensat, here, b"file", nowhere, 0) == 0:
        print("broken: the call succeeded with the address", hex(address))
for seconds in (-(2**63), 2**63 - 1):
    libc.syscall(utimensat, here, b"file", (ctypes.c_long * 4)(seconds, 0, seconds, 2**62), 0)
print("held")
