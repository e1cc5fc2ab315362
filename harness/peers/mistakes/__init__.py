"""The mistakes, one module for each thing that they are about. Importing a module registers its mistakes."""
