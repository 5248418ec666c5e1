"""Readers of what engines, GPUs, hosts and paths expose."""
