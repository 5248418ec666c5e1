"""Every experiment by its name: planned in trials, run over cores, reported beside what others published."""
