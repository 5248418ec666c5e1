"""Constants of a written policy, from text."""


class UnknownPolicyError(ValueError):
    """The written form names no policy, or no constant."""


def parsed(written: str, value: str, wanted: type) -> bool | int | float:
    """The value as a `wanted`. Raises UnknownPolicyError that quotes `written`."""
    if wanted is bool:
        if value not in ("0", "1", "true", "false"):
            raise UnknownPolicyError(f"{written!r} is neither 0 nor 1")
        return value in ("1", "true")
    try:
        return int(value) if wanted is int else float(value)
    except ValueError as error:
        raise UnknownPolicyError(f"{written!r} is not a {wanted.__name__}") from error
