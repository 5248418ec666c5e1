"""Live experiments: grid harness, load client, demo, reports."""
