"""Not an attack: programs can change the permissions and times of their own files in every way."""

import ctypes
import os
import shutil
import subprocess
import tempfile
import zipfile

with open("tool", "w") as file:
    file.write("#!/bin/sh\necho ran\n")
os.chmod("tool", 0o755)
ran = subprocess.run(["./tool"], capture_output=True, text=True).stdout
shutil.copy("tool", "copy")
shutil.copytree(".", "tree", ignore=lambda *_: ["tree"])
subprocess.run("cp -a tool kept && chmod u-x kept && touch -d @7 kept && tar cf a.tar kept && tar xf a.tar", shell=True)
with zipfile.ZipFile("a.zip", "w") as archive:
    archive.write("tool")
os.symlink("tool", "link")
opened = os.open("tool", os.O_RDONLY)
os.fchmod(opened, 0o711)
os.utime(opened, ns=(1, 2_000_000_003))
folder = os.open(".", os.O_RDONLY)
os.chmod("copy", 0o600, dir_fd=folder)
os.utime("copy", (4, 5), dir_fd=folder)
os.utime("link", (8, 9), follow_symlinks=False)
ctypes.CDLL(None).utimes(b"tree/tool", (ctypes.c_long * 4)(6, 0, 7, 1))
with tempfile.NamedTemporaryFile() as temporary:
    os.chmod(temporary.name, 0o640)
    os.utime(temporary.name)
found = {name: os.lstat(name) for name in ("tool", "copy", "kept", "link", "tree/tool")}
seen = [
    ran == "ran\n",
    found["tool"].st_mode & 0o777 == 0o711,
    found["tool"].st_mtime_ns == 2_000_000_003,
    found["copy"].st_mode & 0o777 == 0o600,
    found["copy"].st_mtime == 5,
    found["kept"].st_mtime == 7,
    found["kept"].st_mode & 0o100 == 0,
    found["link"].st_mtime == 9,
    found["tree/tool"].st_mtime_ns == 7_000_001_000,
]
print("held" if all(seen) else f"broken: {seen}")
