"""Speed and memory, reported beside their bounds: `make bench`."""
