"""Names of the emulator's processes."""


def engine_name(cell_id: str) -> str:
    """The process of an engine."""
    return f"engine:{cell_id}"


def exporter_name(site: str) -> str:
    """The process of an exporter."""
    return f"exporter:{site}"
