"""The model of a multipart form, such as an upload of a sound file."""

import re

MAX_SCAN_BYTES = 65_536  # at either end: clients write plain fields before or after the file
MAX_VALUE_BYTES = 1_024

_MODEL = re.compile(
    rb'content-disposition:[^\r\n]{0,256}[; ]name="?model"?[^\r\n]{0,256}\r?\n'
    rb"(?:[^\r\n]{1,512}\r?\n){0,8}\r?\n([^\r\n]*)\r?\n",
    re.I,
)


def is_form(content_type: str) -> bool:
    """Whether the body is a multipart form."""
    return content_type.lstrip().lower().startswith("multipart/form-data")


def model_of(body: bytes) -> str | None:
    """The form field `model`; None without one."""
    found = _MODEL.search(body[:MAX_SCAN_BYTES]) or _MODEL.search(body[-MAX_SCAN_BYTES:])
    if found is None or len(found[1]) > MAX_VALUE_BYTES:
        return None
    return found[1].decode("utf-8", "replace").strip() or None
