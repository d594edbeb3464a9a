"""A batch former that one record kills, as a fault of its decoder would."""

from __future__ import annotations

import os
import signal

from headrace.broker import Record
from headrace.domain import CancelRead, RequestRead, RequestRejected
from headrace.wire import RequestDecoder
from services.batch_former.main import main

LETHAL = "a record that kills"

_decode = RequestDecoder.decode


def decode(
    self: RequestDecoder, record: Record
) -> RequestRead | CancelRead | RequestRejected:
    if LETHAL.encode() in (record.value or b""):
        os.kill(os.getpid(), signal.SIGKILL)
    return _decode(self, record)


if __name__ == "__main__":
    RequestDecoder.decode = decode  # type: ignore[method-assign] # the planted fault
    main()
