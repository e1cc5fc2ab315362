"""A file that replaces the notebook's results is not read, regardless of its size."""

# %%
import os

os.makedirs("tmp/sandbox/configs", exist_ok=True)
with open("tmp/sandbox/configs/output.json", "wb") as file:
    file.truncate(2**30 - 1)
# %%
print("held")
