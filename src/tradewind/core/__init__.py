"""Every decision, pure and synchronous: time comes in as now_s, chance as rng."""
