"""View and weights to an immutable, content-addressed Envoy snapshot."""
