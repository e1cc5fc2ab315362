"""A program can open only Unix and internet sockets, and ask about its interfaces: no other kind,
such as a socket to the host of a virtual machine (AF_VSOCK), leads out.
"""

import ctypes
import socket

MOST_FAMILIES = 64
"""The kernel has fewer."""
ROUTES = 0
"""What C libraries ask for names of interfaces and their addresses."""
MOST_PROTOCOLS = 32
KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
ALLOWED = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
libc = ctypes.CDLL(None)
pair = (ctypes.c_int * 2)()
for family in set(range(MOST_FAMILIES)) - ALLOWED:
    for kind in KINDS:
        if libc.socket(family, kind, 0) >= 0 or libc.socketpair(family, kind, 0, pair) >= 0:
            print("broken: a socket of family", family)
for protocol in set(range(MOST_PROTOCOLS)) - {ROUTES}:
    if libc.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) >= 0:
        print("broken: a netlink socket of protocol", protocol)
for family in (socket.AF_UNIX, socket.AF_INET):
    socket.socket(family).close()
socket.if_nameindex()
print("held")
