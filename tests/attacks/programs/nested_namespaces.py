"""A program cannot make namespaces, in which it could mount file systems and use memory that is not
counted."""

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS, NEWIPC, NEWPID = 0x10000000, 0x20000, 0x08000000, 0x20000000
for flags in (NEWUSER, NEWUSER | NEWIPC, NEWUSER | NEWNS, NEWUSER | NEWPID):
    if libc.unshare(flags) == 0:
        print("broken: unshare", hex(flags))
stack = ctypes.create_string_buffer(65536)
function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 0)
child = libc.clone(
    function, ctypes.c_void_p(ctypes.addressof(stack) + 65536 - 64), NEWUSER | NEWIPC | 17, None
)
if child > 0:
    print("broken: clone")
print("held")
