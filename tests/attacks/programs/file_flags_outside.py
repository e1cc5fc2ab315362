"""A program cannot change file flags outside the request's directories."""

import fcntl
import os
import struct

GET, SET, NODUMP = 0x80086601, 0x40086602, 0x40
GET_EXTENDED, SET_EXTENDED = 0x801C581F, 0x401C5820

outside = os.environ["OUTSIDE"]
for path in (f"{outside}/file", f"{outside}/open-to-all", f"{outside}/folder"):
    opened = os.open(path, os.O_RDONLY)
    try:
        flags = struct.unpack("i", fcntl.ioctl(opened, GET, bytes(4)))[0]
        fcntl.ioctl(opened, SET, struct.pack("i", flags | NODUMP))
        print("broken: flags of", path)
    except OSError:
        pass
    try:
        fcntl.ioctl(opened, SET_EXTENDED, fcntl.ioctl(opened, GET_EXTENDED, bytes(28)))
        print("broken: extended flags of", path)
    except OSError:
        pass
print("held")
