"""Datatypes, shapes and signatures in the words of the Open Inference Protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["VARIABLE", "Datatype", "Signature", "Tensor", "TensorSpec"]

VARIABLE = -1
"""A dimension that each request chooses."""


class Datatype(StrEnum):
    """Element types; ``BF16`` as Triton and KServe extend the protocol."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def item_bytes(self) -> int | None:
        """Bytes of one element, or None where elements differ (``BYTES``)."""
        return _ITEM_BYTES[self]

    @property
    def typestr(self) -> str | None:
        """Raw elements in the words of numpy's array interface; None where numpy has
        no type for them (``BF16``) or they differ in length (``BYTES``)."""
        return _TYPESTR.get(self)


_ITEM_BYTES: dict[Datatype, int | None] = {
    Datatype.BOOL: 1,
    Datatype.UINT8: 1,
    Datatype.UINT16: 2,
    Datatype.UINT32: 4,
    Datatype.UINT64: 8,
    Datatype.INT8: 1,
    Datatype.INT16: 2,
    Datatype.INT32: 4,
    Datatype.INT64: 8,
    Datatype.FP16: 2,
    Datatype.BF16: 2,
    Datatype.FP32: 4,
    Datatype.FP64: 8,
    Datatype.BYTES: None,
}

_TYPESTR: dict[Datatype, str] = {
    Datatype.BOOL: "|b1",
    Datatype.UINT8: "|u1",
    Datatype.UINT16: "<u2",
    Datatype.UINT32: "<u4",
    Datatype.UINT64: "<u8",
    Datatype.INT8: "|i1",
    Datatype.INT16: "<i2",
    Datatype.INT32: "<i4",
    Datatype.INT64: "<i8",
    Datatype.FP16: "<f2",
    Datatype.FP32: "<f4",
    Datatype.FP64: "<f8",
}


class TensorSpec(msgspec.Struct, frozen=True):
    """What a model takes or gives under one name; ``shape`` has the batch axis."""

    name: str
    datatype: Datatype
    shape: tuple[Annotated[int, Meta(ge=VARIABLE, le=2**31 - 1)], ...]


class Signature(msgspec.Struct, frozen=True):
    """A model's inputs and outputs, in the order of its file."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Tensor(msgspec.Struct, frozen=True):
    """One tensor of a request or a reply.

    ``data`` is the protocol's raw form: little-endian, row-major, no padding;
    ``BOOL`` one byte; ``BYTES`` a 4-byte little-endian length before each element.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: bytes | memoryview
