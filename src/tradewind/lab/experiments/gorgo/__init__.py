"""GORGO's evaluation run again: three windows, a load sweep, the failure without a queue weight."""
