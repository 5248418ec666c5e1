"""Tuners and test beds that only the laboratory has."""
