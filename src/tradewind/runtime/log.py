"""Logs are events: one line, a stable name, key=value; nothing per request above DEBUG."""

import json
import logging
import sys


def setup_logging(process: str, *, level: str = "INFO") -> None:
    """Send log lines of this process to stderr, each with a time, a level and the process's name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s.%(msecs)03d %(levelname)s {process} %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start-up lines say nothing that ours do not


def log_event(logger: logging.Logger, name: str, *, level: int = logging.INFO, **details: object) -> None:
    """Log one event, e.g. log_event(log, "cell.faulted", cell="east-0", reason="refused")."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", " ".join((name, *(f"{key}={_text(value)}" for key, value in details.items()))))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    # What a peer sent must end no line and tell a terminal nothing.
    plain = text.isprintable() and not any(char in ' "=' for char in text)
    return text if text and plain else json.dumps(text)
