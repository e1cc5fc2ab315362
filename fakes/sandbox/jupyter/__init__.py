"""What runs the cells of a notebook: a driver that talks to a real kernel, or to the built-in cell runner."""
