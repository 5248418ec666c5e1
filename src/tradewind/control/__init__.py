"""The control process: registry, life cycle, grid views, admin API."""
