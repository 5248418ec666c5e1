"""Live experiments on one grid each; durations are parameters, so that tests run them shortened."""
