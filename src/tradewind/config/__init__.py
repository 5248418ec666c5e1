"""File to typed to checked configuration; errors say where and what to write."""
