"""Engines killed under load, minute after minute: what is lost with the first-token gate, and without it beside it."""
