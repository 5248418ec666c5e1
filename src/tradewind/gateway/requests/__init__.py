"""From the bytes of a client's request to what the decision needs: model, length, and the hashes of its prefix."""
