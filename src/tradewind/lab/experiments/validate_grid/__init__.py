"""The simulator against a live emulated grid: the same requests, policies and paths; real Envoy, real gateway."""
