"""The cell agent: scrapes, watches liveness, sends heartbeats."""
