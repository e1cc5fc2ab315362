"""A program that makes deeply nested directories gets its answer, and the directories are
removed."""

import os

for _ in range(1100):  # more than Python recurses
    os.mkdir("d")
    os.chdir("d")
print("held")
