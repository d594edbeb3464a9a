"""One metadata request, spoken by hand, to learn whether a broker serves.

The clients have their home elsewhere, and none of them tells "not yet" from "never"
within milliseconds.
"""

import socket
import struct

__all__ = ["answers_metadata"]

# Request header v1: api key (Metadata), api version, correlation id, no client id;
# then an array of no topics.
_BODY = struct.pack(">hhihi", 3, 1, 1, -1, 0)
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
_ANSWER_START = struct.Struct(">iii")


def answers_metadata(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Whether the broker at this address lists at least one live broker."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(_REQUEST)
            answer = connection.recv(_ANSWER_START.size, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(answer) < _ANSWER_START.size:
        return False
    _, _, brokers = _ANSWER_START.unpack(answer)
    return int(brokers) > 0
