"""A cell cannot forge the notebook's results: it can reach neither the driver's file nor its
descriptors."""

# %%
import glob
import json
import os

forged = json.dumps([{"stdout": "broken: forged", "stderr": "", "display": [], "error": []}] * 2)
os.makedirs("tmp/sandbox/configs", exist_ok=True)
target = "tmp/sandbox/configs/output.json"
open(target, "w").write(forged)
os.chmod(target, 0o444)
os.chmod("tmp/sandbox/configs", 0o555)
for descriptor in glob.glob(f"/proc/{os.getppid()}/fd/*"):
    try:
        if os.readlink(descriptor).startswith("/"):
            open(descriptor, "w").write(forged)
    except OSError:
        pass
# %%
print("held")
