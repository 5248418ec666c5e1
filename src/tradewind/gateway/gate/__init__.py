"""Which first-token gate the Envoy of this gateway gets."""
