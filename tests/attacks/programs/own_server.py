"""A program cannot reach the server that runs it, or any other server, over the network.

Not promised: root-without-namespaces, user-without-namespaces (programs use the machine's network;
--require-token refuses these modes).
"""

import os
import socket

for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
    with socket.socket(family) as client:
        try:
            client.connect((address, int(os.environ["PORT"])))
        except OSError:
            continue
        print("broken: connected to", address)
with open("/proc/net/dev") as file:
    if names := [line.split(":")[0].strip() for line in file if ":" in line and "lo:" not in line]:
        print("broken: there are interfaces:", names)
print("held")
