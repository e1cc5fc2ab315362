"""A program cannot read files directly in `/`, where containers and administrators leave some.

Not promised: accident-proof (only a namespace hides files).
"""

import os

for entry in os.scandir("/"):
    if entry.is_dir():
        continue
    try:
        with open(entry.path, "rb") as file:
            if file.read(1):
                print("broken: read", entry.path)
    except OSError:
        continue
print("held")
