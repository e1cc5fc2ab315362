"""Nothing of a request is left in /dev/shm.

Named in user-without-namespaces: programs share the machine's /dev/shm.
"""

with open("/dev/shm/sfusion-attack-leftover", "w") as file:
    file.write("left")
print("held")
