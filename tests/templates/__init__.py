"""Which chat templates can be continued turn by turn: ``python -m tests.templates FOLDER`` for real
ones (*.jinja)."""
