"""Load tools of others against the live grid: what they measure beside what ours measures."""
