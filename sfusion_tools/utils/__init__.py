"""verl 0.7 has its tool registry in a package of this name."""
