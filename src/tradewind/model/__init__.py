"""The nouns of the grid: frozen values, no behaviour beyond reading themselves."""
