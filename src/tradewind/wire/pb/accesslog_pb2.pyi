from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Message(_message.Message):
    __slots__ = ("http_logs",)
    HTTP_LOGS_FIELD_NUMBER: _ClassVar[int]
    http_logs: Entries
    def __init__(self, http_logs: _Optional[_Union[Entries, _Mapping]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("log_entry",)
    LOG_ENTRY_FIELD_NUMBER: _ClassVar[int]
    log_entry: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, log_entry: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("common_properties",)
    COMMON_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    common_properties: Common
    def __init__(self, common_properties: _Optional[_Union[Common, _Mapping]] = ...) -> None: ...

class Common(_message.Message):
    __slots__ = ("custom_tags",)
    CUSTOM_TAGS_FIELD_NUMBER: _ClassVar[int]
    custom_tags: Tag
    def __init__(self, custom_tags: _Optional[_Union[Tag, _Mapping]] = ...) -> None: ...

class Tag(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...
