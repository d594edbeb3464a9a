"""Shipped fakes, imported by tests alone."""

from headrace.testing.clock import ManualClock
from headrace.testing.group import MemoryGroup, MemoryLeader
from headrace.testing.log import (
    MemoryAdmin,
    MemoryBroker,
    MemoryProducer,
    MemoryReader,
)
from headrace.testing.storage import Outage

__all__ = [
    "ManualClock",
    "MemoryAdmin",
    "MemoryBroker",
    "MemoryGroup",
    "MemoryLeader",
    "MemoryProducer",
    "MemoryReader",
    "Outage",
]
