"""The engine as a pure model: step-time law, scheduler with KV blocks, GPU signals. One object, driven by live or virtual time."""
