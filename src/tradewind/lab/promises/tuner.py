"""Issue 6: the tuner. What it must not do where there is nothing to find, and what it must do where there is."""

from collections.abc import Sequence

from tradewind.lab.promises.bench import Item
from tradewind.lab.promises.laboratory import claims_of

ITEMS: Sequence[Item] = (
    Item(item="6/1", title="tuners where weights have no effect", run=claims_of("tuner-aa")),
    Item(item="6/2", title="tuners from priors that are 10x wrong", run=claims_of("tuner-prior")),
)
