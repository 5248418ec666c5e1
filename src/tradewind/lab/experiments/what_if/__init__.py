"""An operator's own grid, simulated as it is and as it might be."""
