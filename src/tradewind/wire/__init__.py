"""Protobuf messages and converters to and from the model."""
