"""A program cannot exceed its limits or outlive its request by blinding or starving the processes
that watch it.

Not promised: root-without-cgroup (the kernel does not limit the processes of root).
"""

# mutations: started directly

import os
import resource
import signal

server = int(os.environ["SERVER"])
watchers, pid = [], os.getppid()
while pid > 1 and pid != server:  # never beyond the server: those are the processes of the test
    watchers.append(pid)
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
in_namespace = not os.path.exists(f"/proc/{server}")
for pid in [*watchers, 1] if in_namespace else [*watchers, server]:
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        try:
            soft, hard = resource.prlimit(pid, limit)
            resource.prlimit(pid, limit, (0, hard))
        except OSError:
            continue
        if pid != 1:
            print(
                "broken: prlimit on",
                "the server" if pid == server else "the supervisor",
                flush=True,
            )
children = 0
while children < 2 * int(os.environ["TASKS"]):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        signal.pause()
    children += 1
if children > int(os.environ["TASKS"]):
    print(children, "processes at once, until they are killed", flush=True)
    signal.pause()
print("held")
