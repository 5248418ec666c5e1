"""Emulated cells in real time: engines that behave like vLLM, their DCGM exporter, WAN delay, and faults on demand."""
