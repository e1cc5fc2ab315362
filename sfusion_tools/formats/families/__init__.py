"""One module per model family, with its parser and its formats. ``registry`` finds them here."""
