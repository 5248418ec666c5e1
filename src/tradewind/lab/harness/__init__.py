"""What every experiment is run by: trials over cores, kept results, tables, page and JSON document."""
