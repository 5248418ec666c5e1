"""The gateway process: measures paths, scores, serves ADS, reads outcomes."""
