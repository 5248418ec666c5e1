"""The engine as a pure model: step-time law, scheduler with KV blocks, GPU signals; for live or virtual time."""
