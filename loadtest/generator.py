"""Sends one stream of requests; a process of its own: ``python -m loadtest.generator``.

It speaks as :mod:`loadtest.stream` says. Latency counts from the scheduled arrival, so
a server that stalls does not slow down the questions (coordinated omission).

One thread and a loop of its own on epoll, since asyncio's spends more per request
than some servers do; what this one spends is in README.md.
"""

from __future__ import annotations

import gc
import re
import select
import socket
import sys
import time
from array import array
from collections import deque

from loadtest.stream import (
    CONNECT_FAILED,
    NUMBER,
    OK,
    READY,
    RESET,
    UNANSWERED,
    WRONG,
    Outcome,
    Prepared,
    Records,
    Stream,
)

__all__ = ["Generator"]

_EVENTS_MAX = 64
"""Answers read before the next arrivals are looked at."""

_READ_BYTES = 256 * 1024
_EPOLL_GRAIN_NS = 1_000_000
"""epoll waits in whole milliseconds; shorter waits go through select."""

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_REASON = re.compile(rb"\r\nheadrace-reason:[ \t]*(\w+)", re.IGNORECASE)
_SUCCESS = Outcome(OK)
_NOTHING = memoryview(b"")


class _Connection:
    __slots__ = (
        "address",
        "connecting",
        "fd",
        "number",
        "prepared",
        "received",
        "recv",
        "scheduled",
        "send",
        "sent",
        "socket",
        "unsent",
        "waiting",
    )

    def __init__(self, address: int, number: int, fresh: socket.socket) -> None:
        self.address = address
        self.number = number
        self.socket = fresh
        self.fd = fresh.fileno()
        self.recv = fresh.recv
        self.send = fresh.send
        self.connecting = True
        self.waiting = False
        self.received = b""
        self.unsent = _NOTHING
        self.prepared = Prepared(b"")
        self.scheduled = 0
        self.sent = 0


class Generator:
    """One stream: connects when it is made, sends in ``run``."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._closed_loop = stream.arrivals_ns is None
        self._arrivals = stream.arrivals_ns or array("q")
        self._epoll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._idle: list[list[_Connection]] = [[] for _ in stream.addresses]
        self._queued: deque[int] = deque()
        self._open_max = 0
        self._unended = 0
        self._codes: dict[Outcome, int] = {}
        self._scheduled = array("q")
        self._sent = array("q")
        self._ended = array("q")
        self._outcome = array("q")
        self._start_ns = 0
        for number in range(stream.connections if self._closed_loop else stream.opened):
            connection = self._connect(number % len(stream.addresses), number)
            if not self._closed_loop:
                self._take_next(connection)

    def run(self, start_ns: int) -> Records:
        """Returns after the drain, or when all is answered."""
        self._start_ns = start_ns
        time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
        cpu_ns = time.process_time_ns()
        if self._closed_loop:
            self._run_closed_loop()
        else:
            self._run_open_loop()
        self._give_up()
        return Records(
            self._scheduled,
            self._sent,
            self._ended,
            self._outcome,
            list(self._codes),
            self._open_max,
            time.process_time_ns() - cpu_ns,
        )

    def _now(self) -> int:
        return time.monotonic_ns() - self._start_ns

    def _run_closed_loop(self) -> None:
        stream = self._stream
        for connection in list(self._connections.values()):
            self._begin(connection, connection.number, 0)
        while True:
            now = self._now()
            if now >= stream.send_ns and (
                not self._unended or now >= stream.send_ns + stream.drain_ns
            ):
                return
            for fd, mask in self._epoll.poll(0.05, _EVENTS_MAX):
                connection = self._connections[fd]
                if self._advance(connection, mask):
                    now = self._now()
                    if now < stream.send_ns:
                        self._begin(connection, connection.number, now)

    def _run_open_loop(self) -> None:
        arrivals, following = self._arrivals, 0
        last = (arrivals[-1] if arrivals else 0) + self._stream.drain_ns
        while True:
            now = self._now()
            while following < len(arrivals) and arrivals[following] <= now:
                self._arrive(following)
                following += 1
                now = self._now()
            if now >= last or (following == len(arrivals) and not self._unended):
                return
            due = arrivals[following] if following < len(arrivals) else last
            for fd, mask in self._wait(due - now):
                connection = self._connections[fd]
                if self._advance(connection, mask):
                    self._take_next(connection)

    def _wait(self, left_ns: int) -> list[tuple[int, int]]:
        if left_ns > 2 * _EPOLL_GRAIN_NS:
            return self._epoll.poll((left_ns - _EPOLL_GRAIN_NS) / 1e9, _EVENTS_MAX)
        select.select((self._epoll,), (), (), max(left_ns, 0) / 1e9)
        return self._epoll.poll(0, _EVENTS_MAX)

    def _arrive(self, number: int) -> None:
        self._unended += 1
        address = number % len(self._idle)
        idle = self._idle[address]
        if idle:
            # The last one in first: a few warm connections rather than many.
            self._begin(idle.pop(), number, self._arrivals[number])
        elif len(self._connections) < self._stream.connections:
            connection = self._connect(address, number)
            self._begin(connection, number, self._arrivals[number])
        else:
            self._queued.append(number)

    def _take_next(self, connection: _Connection) -> None:
        """An open loop's connection is free."""
        if self._queued:
            number = self._queued.popleft()
            self._begin(connection, number, self._arrivals[number])
        else:
            self._idle[connection.address].append(connection)

    def _connect(self, address: int, number: int) -> _Connection:
        fresh = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(address, number, fresh)
        # EINPROGRESS, or an error that polling reports.
        fresh.connect_ex(self._stream.addresses[address])
        self._epoll.register(fresh, select.EPOLLIN | select.EPOLLOUT)
        self._connections[connection.fd] = connection
        self._open_max = max(self._open_max, len(self._connections))
        return connection

    def _begin(self, connection: _Connection, number: int, scheduled: int) -> None:
        if self._closed_loop:
            self._unended += 1
        requests = self._stream.requests
        prepared = connection.prepared = requests[number % len(requests)]
        connection.scheduled = scheduled
        connection.sent = self._now()
        connection.waiting = True
        connection.received = b""
        if connection.connecting:
            connection.unsent = memoryview(prepared.wire)
            return
        try:
            sent = connection.send(prepared.wire)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._break_off(connection)
            return
        if sent != len(prepared.wire):
            connection.unsent = memoryview(prepared.wire)[sent:]
            self._epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT)

    def _advance(self, connection: _Connection, mask: int) -> bool:
        """True: answered, and the connection can take another request."""
        if mask & select.EPOLLOUT and not self._write(connection):
            return False
        if not mask & ~select.EPOLLOUT:
            return False
        try:
            data = connection.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._break_off(connection)
            return False
        if connection.received:
            data = connection.received + data
        answer = _answer_in(data)
        if answer is None or not connection.waiting:
            connection.received = data
            return False
        outcome, closes = answer
        if outcome.status == OK and not data.endswith(connection.prepared.answer_end):
            outcome = Outcome(WRONG)
        self._end(connection, outcome)
        if closes:
            self._replace(connection)
        return not closes

    def _write(self, connection: _Connection) -> bool:
        """False: the connection broke."""
        if connection.connecting:
            if connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._break_off(connection)
                return False
            connection.connecting = False
        if connection.unsent:
            try:
                sent = connection.send(connection.unsent)
            except BlockingIOError:
                return True
            except OSError:
                self._break_off(connection)
                return False
            connection.unsent = connection.unsent[sent:]
        if not connection.unsent:
            self._epoll.modify(connection.fd, select.EPOLLIN)
        return True

    def _end(self, connection: _Connection, outcome: Outcome) -> None:
        connection.waiting = False
        self._unended -= 1
        self._record(connection.scheduled, connection.sent, self._now(), outcome)

    def _record(self, scheduled: int, sent: int, ended: int, outcome: Outcome) -> None:
        self._scheduled.append(scheduled)
        self._sent.append(sent)
        self._ended.append(ended)
        self._outcome.append(self._codes.setdefault(outcome, len(self._codes)))

    def _break_off(self, connection: _Connection) -> None:
        if connection.waiting:
            failed = CONNECT_FAILED if connection.connecting else RESET
            self._end(connection, Outcome(failed))
        self._replace(connection)

    def _replace(self, connection: _Connection) -> None:
        """Close a connection; whoever counted on it gets another one."""
        del self._connections[connection.fd]
        connection.socket.close()
        idle = self._idle[connection.address]
        if connection in idle:
            idle.remove(connection)
        if self._closed_loop:
            now = self._now()
            # Where nobody listens, asking again would only spin.
            if now < self._stream.send_ns and not connection.connecting:
                fresh = self._connect(connection.address, connection.number)
                self._begin(fresh, fresh.number, max(now, 0))
        elif self._queued:
            self._take_next(self._connect(connection.address, connection.number))

    def _give_up(self) -> None:
        """Count what was never answered."""
        for connection in self._connections.values():
            if connection.waiting:
                self._end(connection, Outcome(UNANSWERED))
        for number in self._queued:
            self._record(
                self._arrivals[number], -1, -1, Outcome(UNANSWERED, "not_sent")
            )


def _answer_in(data: bytes) -> tuple[Outcome, bool] | None:
    """The outcome, and whether the server closes; None: not complete."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    # Our own server's spelling first: patterns cost half a microsecond each.
    start = data.find(b"\r\ncontent-length: ", 0, head_end)
    if start >= 0:
        length = int(data[start + 18 : data.find(b"\r", start + 18)])
    else:
        found = _LENGTH.search(data, 0, head_end)
        length = int(found[1]) if found else -1
    if length >= 0:
        if len(data) < head_end + 4 + length:
            return None
    elif _CHUNKED.search(data, 0, head_end) and not data.endswith(b"\r\n0\r\n\r\n"):
        return None
    closes = data.find(b"onnection", 0, head_end) >= 0 and bool(
        _CLOSE.search(data, 0, head_end)
    )
    status = int(data[9:12])
    if status == OK:
        return _SUCCESS, closes
    reason = _REASON.search(data, 0, head_end)
    return Outcome(status, reason[1].decode() if reason else ""), closes


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    (size,) = NUMBER.unpack(source.read(NUMBER.size))
    generator = Generator(Stream.decode(source.read(size)))
    gc.collect()
    gc.freeze()
    gc.disable()
    sink.write(READY)
    sink.flush()
    (start_ns,) = NUMBER.unpack(source.read(NUMBER.size))
    sink.write(generator.run(start_ns).encode())


if __name__ == "__main__":
    main()
