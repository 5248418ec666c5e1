"""Engines and clients that cost little: what is left is what a router costs."""
