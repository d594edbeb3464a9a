"""Bytes <-> domain values; the names of topics and headers."""

from headrace.wire.records import Headers, NewTopic, Record

__all__ = ["Headers", "NewTopic", "Record"]
