"""The only owners of clock, tasks, sockets, processes, logs and metrics."""
