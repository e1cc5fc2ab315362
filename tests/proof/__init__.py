"""Tools of other people: a right one, and one for each mistake that a promise must catch."""
