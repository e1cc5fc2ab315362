# Asks the warm interpreter to run this command, and is its face: standard streams, signals, exit
# code. Without it, or when it could not do the same, the real interpreter runs the command.
import _signal as signal
import _socket
import array
import marshal
import os
import select
import sys

FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
}

own = [os.path.basename(__file__)] == FIRST  # noqa: F821 # written above this text, as PYTHON is
words = [*FIRST, *sys.argv[1:]]  # noqa: F821
signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
warm = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
request = {
    "words": words,
    "folder": os.getcwd(),
    "environ": dict(os.environ),
    "umask": os.umask(0o77),
    "ignored": [int(one) for one in FORWARDED if signal.getsignal(one) == signal.SIG_IGN],
}
os.umask(request["umask"])
try:
    warm.connect(os.path.join(os.path.dirname(__file__), "socket"))
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
    warm.sendmsg([marshal.dumps(request)], [rights])
    started = marshal.loads(warm.recv(100) or marshal.dumps(0))
except OSError:
    started = 0
if not started:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    os.execv(PYTHON, [PYTHON, *(["-m"] if own else []), *words])  # noqa: F821

for number in FORWARDED:
    signal.signal(number, lambda number, _: os.kill(started, number))
woken, wake = _socket.socketpair()
wake.setblocking(False)
signal.set_wakeup_fd(wake.fileno())  # a signal just before a wait would not end it
signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
while warm not in select.select([warm, woken], [], [])[0]:
    woken.recv(100)
ended = marshal.loads(warm.recv(100))
if ended < 0:
    signal.signal(-ended, signal.SIG_DFL)
    os.kill(os.getpid(), -ended)
os._exit(ended)
