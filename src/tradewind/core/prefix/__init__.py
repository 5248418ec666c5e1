"""What this gateway believes to be in the prefix caches of the cells."""
