"""Other routers in front of the same emulated cells: how they are installed, started, loaded and broken."""
