"""One module per model family: its parser, and the declaration of its formats. ``registry`` finds them here."""
