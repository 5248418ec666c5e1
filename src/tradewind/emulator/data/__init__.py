"""Captured pages that the emulator answers with."""
