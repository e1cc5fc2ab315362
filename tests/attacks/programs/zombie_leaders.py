"""A process whose first thread has ended counts towards `tasks` and dies with its request.

Not promised: root-without-cgroup (the kernel does not limit the processes of root).
"""

import ctypes
import os
import platform
import threading
import time

libc = ctypes.CDLL(None)
exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
PR_SET_NAME = 15
libc.prctl(PR_SET_NAME, os.environ["NAME"].encode())
started = 0
try:
    while started < 2 * int(os.environ["TASKS"]):
        if os.fork() == 0:
            os.setsid()
            threading.Thread(target=time.sleep, args=(600,)).start()
            libc.syscall(exit_thread, 0)
        started += 1
except OSError:
    print("held")
else:
    print("broken:", started, "processes")
