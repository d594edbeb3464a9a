"""What a generator process reads from stdin and writes to stdout.

It reads the number of bytes of a Stream and the Stream, connects, writes ``ready`` and
a line feed, reads the instant at which to start (of the machine's monotonic clock),
sends, and writes Records. Two generators speak this: ``generator.py`` everywhere, and
``generator.c`` where there is a C compiler. Integers are int64, little-endian; times
are nanoseconds.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "CONNECT_FAILED",
    "NUMBER",
    "OK",
    "READY",
    "RESET",
    "UNANSWERED",
    "WRONG",
    "Outcome",
    "Prepared",
    "Records",
    "Stream",
]

NUMBER = struct.Struct("<q")
READY = b"ready\n"

OK = 200
UNANSWERED = 0
"""Sent, or still queued, when the drain was over."""

RESET = -1
"""The connection broke before the answer was complete."""

CONNECT_FAILED = -2

WRONG = -3
"""Status 200, and not the answer to this request."""

_CLOSED_LOOP = -1
_HEAD = struct.Struct("<7q")
_PAIR = struct.Struct("<2q")


class Prepared(NamedTuple):
    """One request as it goes over the wire, and the bytes at the end of its right
    answer."""

    wire: bytes
    answer_end: bytes = b""


class Outcome(NamedTuple):
    """How requests ended: an HTTP status or a negative code from above, and the
    server's ``headrace-reason``."""

    status: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of requests. Request i is ``requests[i % n]``, sent to
    ``addresses[i % m]``; in a closed loop i is the number of the connection."""

    addresses: list[tuple[str, int]]
    """IPv4 addresses and ports."""
    requests: list[Prepared]
    connections: int
    """Closed loop: how many; open loop: at most so many, what is more waits."""
    opened: int
    """Open loop: so many are open from the start, as a client's pool is."""
    send_ns: int
    """A closed loop sends for so long."""
    drain_ns: int
    """Answers are awaited for so long after the last request."""
    arrivals_ns: array[int] | None = None
    """Open loop: after the start, ascending. None: closed loop."""

    def encode(self) -> bytes:
        arrivals = self.arrivals_ns
        count = _CLOSED_LOOP if arrivals is None else len(arrivals)
        pieces = [
            _HEAD.pack(
                len(self.addresses),
                len(self.requests),
                self.connections,
                self.opened,
                self.send_ns,
                self.drain_ns,
                count,
            )
        ]
        for host, port in self.addresses:
            packed = int.from_bytes(bytes(map(int, host.split("."))), "big")
            pieces.append(_PAIR.pack(packed, port))
        for each in self.requests:
            pieces.append(_PAIR.pack(len(each.wire), len(each.answer_end)))
            pieces += each
        if arrivals is not None:
            pieces.append(arrivals.tobytes())
        return b"".join(pieces)

    @classmethod
    def decode(cls, data: bytes) -> Stream:
        hosts, count, *numbers, arrivals = _HEAD.unpack_from(data)
        at = _HEAD.size
        addresses = []
        for _ in range(hosts):
            packed, port = _PAIR.unpack_from(data, at)
            host = ".".join(map(str, packed.to_bytes(4, "big")))
            addresses.append((host, port))
            at += _PAIR.size
        requests = []
        for _ in range(count):
            wire, end = _PAIR.unpack_from(data, at)
            at += _PAIR.size
            requests.append(
                Prepared(data[at : at + wire], data[at + wire : at + wire + end])
            )
            at += wire + end
        column = None if arrivals == _CLOSED_LOOP else array("q", data[at:])
        connections, opened, send_ns, drain_ns = numbers
        return cls(
            addresses,
            requests,
            connections,
            opened,
            send_ns,
            drain_ns,
            column,
        )


@dataclass(frozen=True, slots=True)
class Records:
    """One element per request in each column, in the order of their ends; times
    count from the stream's start, -1: never."""

    scheduled_ns: array[int]
    sent_ns: array[int]
    ended_ns: array[int]
    outcome: array[int]
    """Indices into ``outcomes``."""
    outcomes: list[Outcome]
    connections: int
    """Most that were open at once."""
    cpu_ns: int
    """What the generator itself used."""

    def encode(self) -> bytes:
        table = "".join(f"{status} {reason}\n" for status, reason in self.outcomes)
        head = struct.pack("<3q", len(self.outcome), self.connections, self.cpu_ns)
        columns = (self.scheduled_ns, self.sent_ns, self.ended_ns, self.outcome)
        return b"".join((head, *(each.tobytes() for each in columns), table.encode()))

    @classmethod
    def decode(cls, data: bytes) -> Records:
        count, connections, cpu_ns = struct.unpack_from("<3q", data)
        at, size = 24, 8 * count
        columns = [
            array("q", data[at + place * size : at + (place + 1) * size])
            for place in range(4)
        ]
        outcomes = []
        for line in data[at + 4 * size :].decode().splitlines():
            status, _, reason = line.partition(" ")
            outcomes.append(Outcome(int(status), reason))
        scheduled, sent, ended, outcome = columns
        return cls(scheduled, sent, ended, outcome, outcomes, connections, cpu_ns)
