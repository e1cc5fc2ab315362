"""The commands of ``sfusion``, one module each; heavy imports happen inside the command that needs them."""
