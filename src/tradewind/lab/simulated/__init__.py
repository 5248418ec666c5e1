"""Experiments in virtual time: policies compared on the same seeds, with intervals."""
