"""Every example of the README and of docs/ does what the page says."""
