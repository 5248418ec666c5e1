"""Which of two settings a request goes by: any gateway answers the same, and no gateway has to remember."""

from hashlib import blake2b

from tradewind.model.tuning import TuningOrder, Weights

_RANGE = float(1 << 64)


def is_child(order: TuningOrder, request_id: str) -> bool:
    """A hash of driver, generation and request id, uniform over requests, decides."""
    if order.child is None:
        return False
    asked = f"{order.driver}/{order.generation}/{request_id}".encode()
    return int.from_bytes(blake2b(asked, digest_size=8).digest(), "big") / _RANGE < order.child_share


def weights_for(order: TuningOrder, request_id: str) -> tuple[Weights, bool]:
    """The weights of this request, and whether they are the child's."""
    child = is_child(order, request_id)
    return (order.child if child and order.child is not None else order.weights), child
