"""The memory of a process counts even after its first thread has ended.

Not promised: accident-proof (only a cgroup counts it).
"""

import ctypes
import os
import platform
import threading
import time

libc = ctypes.CDLL(None)
exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
each = int(os.environ["MEMORY"]) // 4
children = []
for _ in range(8):
    ready, tell = os.pipe()
    children.append(os.fork())
    if children[-1] == 0:
        os.setsid()

        def hold(tell=tell):
            kept = b"x" * each
            os.write(tell, b".")
            time.sleep(600)
            return kept

        threading.Thread(target=hold).start()
        libc.syscall(exit_thread, 0)
    os.close(tell)
    os.read(ready, 1)
alive = sum(os.waitpid(child, os.WNOHANG)[0] == 0 for child in children)
print("broken: twice the bound is in use" if alive == 8 else "held")
