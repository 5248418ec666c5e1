"""A read-only page of what the grid is doing."""
