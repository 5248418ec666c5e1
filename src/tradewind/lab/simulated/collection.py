"""Cycles of objects are collected between simulations, not within: one that runs keeps nearly all that it makes."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection inside; one at the end of what was made inside, since a finished grid is a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.collect(0)
