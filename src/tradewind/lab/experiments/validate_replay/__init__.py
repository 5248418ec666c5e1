"""A picker's capture, live or simulated, through a fresh picker: the same decisions."""
