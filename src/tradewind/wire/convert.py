# ruff: noqa: ANN401 - fields are reached by name, so their static type is not known here
"""Converters between the model and protobuf, by field name: the two mirror each other one to one.

A plan per dataclass or named tuple is made once and kept; an unset optional field is None, never zero.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from tradewind.model.heartbeat import Heartbeat
from tradewind.model.telemetry import Telemetry
from tradewind.model.tuning import TuningOrder
from tradewind.model.view import CellView, GatewayReport, ViewDelta
from tradewind.wire.pb import tradewind_pb2 as pb

Encoder = Callable[[Any, Any], None]
Decoder = Callable[[Any], Any]
Model = TypeVar("Model")

_SCALARS = (bool, int, float, str)


def heartbeat_to_pb(heartbeat: Heartbeat) -> pb.Heartbeat:
    return _encode(heartbeat, pb.Heartbeat())


def heartbeat_from_pb(message: pb.Heartbeat) -> Heartbeat:
    return _decode(Heartbeat, message)


def telemetry_to_pb(telemetry: Telemetry) -> pb.Telemetry:
    return _encode(telemetry, pb.Telemetry())


def telemetry_from_pb(message: pb.Telemetry) -> Telemetry:
    return _decode(Telemetry, message)


def cell_view_to_pb(view: CellView) -> pb.CellView:
    return _encode(view, pb.CellView())


def cell_view_from_pb(message: pb.CellView) -> CellView:
    return _decode(CellView, message)


def delta_to_pb(delta: ViewDelta) -> pb.ViewDelta:
    return _encode(delta, pb.ViewDelta())


def delta_from_pb(message: pb.ViewDelta) -> ViewDelta:
    return _decode(ViewDelta, message)


def order_to_pb(order: TuningOrder) -> pb.TuningOrder:
    return _encode(order, pb.TuningOrder())


def report_to_pb(report: GatewayReport) -> pb.GatewayReport:
    return _encode(report, pb.GatewayReport())


def report_from_pb(message: pb.GatewayReport) -> GatewayReport:
    return _decode(GatewayReport, message)


M = TypeVar("M", bound=Message)


def _encode(value: object, message: M) -> M:
    kind: Any = type(value)
    for name, encode in _encoders(kind):
        item = getattr(value, name)
        if item is not None:
            encode(message, item)
    return message


def _decode(model: type[Model], message: Message) -> Model:
    kind: Any = model
    return model(**{name: decode(message) for name, decode in _decoders(kind)})


@cache
def _encoders(model: Any) -> tuple[tuple[str, Encoder], ...]:
    hints = get_type_hints(model)
    return tuple((name, _encoder(name, hints[name])) for name in _names(model))


@cache
def _decoders(model: Any) -> tuple[tuple[str, Decoder], ...]:
    hints = get_type_hints(model)
    return tuple((name, _decoder(name, hints[name])) for name in _names(model))


def _names(model: Any) -> tuple[str, ...]:
    """Of the fields of a dataclass or a named tuple."""
    return tuple(item.name for item in fields(model)) if is_dataclass(model) else model._fields


def _optional(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) is UnionType:
        (inner,) = (arg for arg in get_args(hint) if arg is not NoneType)
        return inner, True
    return hint, False


def _encoder(name: str, hint: Any) -> Encoder:
    inner, _ = _optional(hint)
    if get_origin(inner) is tuple:
        return _tuple_encoder(name, get_args(inner)[0])
    if inner in _SCALARS or issubclass(inner, StrEnum):
        return lambda message, item: setattr(message, name, item)

    def encode_message(message: Any, item: Any) -> None:
        target = getattr(message, name)
        target.SetInParent()  # an all-unknown reading is still a reading
        _encode(item, target)

    return encode_message


def _tuple_encoder(name: str, element: Any) -> Encoder:
    if element in _SCALARS:
        return lambda message, items: getattr(message, name).extend(items)
    if get_origin(element) is tuple:
        return lambda message, items: _add_pairs(getattr(message, name), items)

    def encode_messages(message: Any, items: Any) -> None:
        repeated = getattr(message, name)
        for item in items:
            _encode(item, repeated.add())

    return encode_messages


def _add_pairs(repeated: Any, items: Any) -> None:
    for pair in items:
        entry = repeated.add()
        for field, part in zip(entry.DESCRIPTOR.fields, pair, strict=True):
            setattr(entry, field.name, part)


def _decoder(name: str, hint: Any) -> Decoder:
    inner, optional = _optional(hint)
    if get_origin(inner) is tuple:
        return _tuple_decoder(name, get_args(inner)[0])
    if inner in _SCALARS:
        if optional:
            return lambda message: getattr(message, name) if message.HasField(name) else None
        return lambda message: getattr(message, name)
    if issubclass(inner, StrEnum):
        return lambda message: inner(getattr(message, name))
    if optional:
        return lambda message: _decode(inner, getattr(message, name)) if message.HasField(name) else None
    return lambda message: _decode(inner, getattr(message, name))


def _tuple_decoder(name: str, element: Any) -> Decoder:
    if element in _SCALARS:
        return lambda message: tuple(getattr(message, name))
    if get_origin(element) is tuple:
        return lambda message: tuple(
            tuple(getattr(entry, field.name) for field in entry.DESCRIPTOR.fields) for entry in getattr(message, name)
        )
    return lambda message: tuple(_decode(element, entry) for entry in getattr(message, name))
