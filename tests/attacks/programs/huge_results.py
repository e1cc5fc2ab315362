"""A file that takes the place of the notebook's results is not read, whatever its size."""

# %%
import os

os.makedirs("tmp/sandbox/configs", exist_ok=True)
with open("tmp/sandbox/configs/output.json", "wb") as file:
    file.truncate(2**30 - 1)
# %%
print("held")
