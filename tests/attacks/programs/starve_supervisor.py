"""A program cannot slow down or stop the processes that watch it.

Not promised: no-signal-scope (programs can signal other processes).
"""

# mutations: started directly

import os
import signal

server = int(os.environ["SERVER"])


def reschedule(pid):
    before = os.sched_getscheduler(pid)
    os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    if os.sched_getscheduler(pid) == before:
        raise PermissionError("the filter of system calls only pretends that it succeeds")


attacks = {
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "scheduler": reschedule,
    "affinity": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    "signal": lambda pid: os.kill(pid, signal.SIGWINCH),
    "environment": lambda pid: open(f"/proc/{pid}/environ").read(),
    "memory": lambda pid: open(f"/proc/{pid}/mem", "r+b"),
}
pid, watchers = os.getppid(), {server}
while pid > 1 and pid != server:
    watchers.add(pid)
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
for pid in watchers:
    for name, attack in attacks.items():
        try:
            attack(pid)
        except OSError:
            continue
        print("broken:", name, "of", "the server" if pid == server else "the supervisor")
print("held")
