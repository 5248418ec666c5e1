"""Named streams of chance: one seed gives each part of a workload a generator of its own."""

import random


def stream(seed: int, name: str) -> random.Random:
    """The generator called `name` under `seed`; equal arguments give equal sequences on every machine and Python."""
    return random.Random(f"{seed}/{name}")  # a text seed is hashed by SHA-512: stable
