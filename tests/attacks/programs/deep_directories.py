"""A program with deeply nested directories gets its answer, and they are removed."""

import os

for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
print("held")
