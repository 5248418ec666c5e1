"""What must be true, issue by issue: one file for each, with the items that `make verify` runs."""
