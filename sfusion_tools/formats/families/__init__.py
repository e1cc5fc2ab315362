"""One module per model family, with its parser and its formats. ``formats`` finds them here."""
