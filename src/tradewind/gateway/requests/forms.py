"""The model of a multipart form, such as an upload of a sound file."""

MAX_SCAN_BYTES = 65_536  # at either end: clients write plain fields before or after the file
MAX_FIELD_BYTES = 2_048  # headers and value
MAX_CANDIDATES = 16  # places that look like the field; a file may hold some

_NAMES = (b'name="model"', b"name=model")
_LINE = b"content-disposition:"


def is_form(content_type: str) -> bool:
    """Whether the body is a multipart form."""
    return content_type.lstrip().lower().startswith("multipart/form-data")


def model_of(body: bytes) -> str | None:
    """The form field `model`; None without one."""
    for part in (body[:MAX_SCAN_BYTES], body[-MAX_SCAN_BYTES:]):
        for name in _NAMES:
            value = _field(part, name)
            if value is not None:
                return value.decode("utf-8", "replace").strip() or None
    return None


def _field(part: bytes, name: bytes) -> bytes | None:
    at = -1
    for _ in range(MAX_CANDIDATES):
        at = part.find(name, at + 1)
        if at < 0:
            return None
        line = part[part.rfind(b"\n", max(0, at - MAX_FIELD_BYTES), at) + 1 : at]
        head, found, rest = part[at : at + MAX_FIELD_BYTES].partition(b"\r\n\r\n")
        value, ended, _ = rest.partition(b"\r\n")
        if line.lower().startswith(_LINE) and head[len(name) : len(name) + 1] in (b";", b"\r", b"") and found and ended:
            return value
    return None
