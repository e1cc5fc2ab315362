"""Directories without permissions are removed too."""

# mutations: in order

import os

os.makedirs("a/b/c")
open("a/b/c/file", "w").close()
for path in ("a/b/c", "a/b", "a", "."):
    os.chmod(path, 0)
print("held")
