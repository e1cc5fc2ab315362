"""A program has no capabilities, and gains none by starting another program.

Not promised: unreachable-python (programs keep the capability to read what root can read).
"""

import subprocess

text = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
sets = dict(
    line.split(":\t") for line in text.splitlines() if line.startswith(("Cap", "NoNewPrivs"))
)
for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
    if int(sets[name], 16):
        print("broken:", name, sets[name])
if sets["NoNewPrivs"] != "1":
    print("broken: a setuid program gives privileges")
print("held")
