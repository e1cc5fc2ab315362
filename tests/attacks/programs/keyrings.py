"""The next request cannot find a key that a program added."""

import ctypes
import platform

libc = ctypes.CDLL(None, use_errno=True)
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[platform.machine()]
SESSION, USER, USER_SESSION = -3, -4, -5
for ring in (SESSION, USER, USER_SESSION):
    if libc.syscall(add_key, b"user", b"sfusion-attack", b"left", ctypes.c_size_t(4), ring) >= 0:
        print("broken: a key in ring", ring)
    if libc.syscall(keyctl, 0, ring, 1) >= 0:
        print("broken: ring", ring, "can be seen")
print("held")
