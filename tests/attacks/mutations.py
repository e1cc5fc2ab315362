"""Other ways to make the same attack, drawn by a seed.

The table of attacks is a list, and a list is all that a layer needs to hold against. A mutation
changes how an attack is started, what it has done before and in which order it tries things; never
what it aims at, so that it touches no more than the attack itself. A program says in a comment
what it cannot do without: ``# mutations: in order``, or ``# mutations: started directly`` (its
parent is what it attacks, or it sets signals, which only a first thread may).
"""

from __future__ import annotations

import ast
import random
import textwrap

PRELUDES = (
    "import os; os.umask(0)",
    "import os; os.nice(5)",
    "import os; os.chdir('/')\nos.chdir(os.environ.get('HOME', '/tmp'))",
    "import os; os.closerange(3, 64)",
    "import resource; resource.setrlimit(resource.RLIMIT_STACK, (2**23, 2**23))",
    "import signal\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)",
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "import os; os.environ['LD_PRELOAD'] = ''",
)
"""What a program may do before an attack without giving anything up that the attack needs."""

IN_ORDER = "# mutations: in order\n"
DIRECTLY = "# mutations: started directly\n"

DIRECT = "{attack}"
IN_A_THREAD = """
import threading
thread = threading.Thread(target=exec, args=({source!r}, {{"__name__": "__main__"}}))
thread.start()
thread.join()
"""
IN_A_CHILD = """
import os
child = os.fork()
if child == 0:
    exec({source!r}, {{"__name__": "__main__"}})
    import sys
    sys.stdout.flush()
    os._exit(0)
_, status = os.waitpid(child, 0)
if os.WIFSIGNALED(status):
    os.kill(os.getpid(), os.WTERMSIG(status))
"""
IN_A_NEW_SESSION = IN_A_CHILD.replace("    exec(", "    os.setsid()\n    exec(")
IN_ANOTHER_INTERPRETER = """
import os, subprocess, sys
done = subprocess.run([sys.executable, "-c", {source!r}])
if done.returncode < 0:
    os.kill(os.getpid(), -done.returncode)
"""
STARTS = (DIRECT, IN_A_THREAD, IN_A_CHILD, IN_A_NEW_SESSION, IN_ANOTHER_INTERPRETER)


class _Shuffled(ast.NodeTransformer):
    """Changes the order of what a loop goes through, if that is written in the loop."""

    def __init__(self, drawn: random.Random) -> None:
        self._drawn = drawn

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Tuple | ast.List):
            self._drawn.shuffle(node.iter.elts)
        return node


def mutated(source: str, seed: str) -> str:
    """Return an attack that is made in another way; the same for the same seed."""
    drawn = random.Random(seed)
    tree = ast.parse(source)
    if IN_ORDER not in source:
        tree = _Shuffled(drawn).visit(tree)
    attack = ast.unparse(ast.fix_missing_locations(tree))
    preludes = drawn.sample(PRELUDES, drawn.randint(0, 3))
    start = DIRECT if DIRECTLY in source else drawn.choice(STARTS)
    if start == DIRECT:
        return "\n".join([*preludes, attack])
    return "\n".join([*preludes, textwrap.dedent(start.format(source=attack))])
