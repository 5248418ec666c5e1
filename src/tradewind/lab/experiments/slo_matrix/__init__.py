"""`slo-matrix`: the rates that policies sustain, by class, service level and disturbance."""
