"""Request records to percentiles, shares, leak, reroute and intervals."""
