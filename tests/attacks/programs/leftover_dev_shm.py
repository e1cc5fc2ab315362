"""A request leaves nothing in /dev/shm.

Not promised: user-without-namespaces (programs share the machine's /dev/shm).
"""

import os

with open(f"/dev/shm/{os.environ['SHARED_NAME']}leftover", "w") as file:
    file.write("left")
os.makedirs(f"/dev/shm/{os.environ['SHARED_NAME']}folder/deeper")
print("held")
