"""Arrivals, lengths and trace readers; seeded."""
