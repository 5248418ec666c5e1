"""The first-token gate: an upstream filter of Envoy that holds an event stream until its first token."""
