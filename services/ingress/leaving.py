"""How an ingress ends: from the signal to the last connection."""

from __future__ import annotations

import socket
from contextlib import suppress

from headrace.lifecycle import DrainFlag, Health
from headrace.telemetry import get_log
from headrace.wire import Heartbeat, Role, ServiceState
from services.ingress.handler import Handler
from services.ingress.kept_parts import KeptParts
from services.ingress.server import HttpServer

__all__ = ["Leaving"]

ABORT_AFTER_US = 250_000
"""So long after the drain's end a client may take to read its last answer."""

GIVE_UP_AFTER_US = 2_000_000

SUCCESSOR_WITHIN_US = 60_000_000
"""For its successor an ingress waits no longer: one that is killed as it starts, on a
busy machine, takes a while."""


class Succession:
    """Whether another process will take connections from the same socket."""

    def __init__(self, descriptor: int | None) -> None:
        """``descriptor``: as ``HEADRACE_HTTP__SUCCESSION``."""
        self._supervisor: socket.socket | None = None
        if descriptor is not None:
            self._supervisor = socket.socket(fileno=descriptor)
            self._supervisor.settimeout(0)
            self._supervisor.set_inheritable(False)

    def ask(self) -> None:
        if self._supervisor is not None:
            with suppress(OSError):
                self._supervisor.send(b"\n")

    @property
    def is_hoped_for(self) -> bool:
        """Whether whoever starts it still listens."""
        if self._supervisor is None:
            return False
        try:
            return self._supervisor.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


class Leaving:
    """All of it runs on the event loop.

    One that has a successor works on until that one is ready, as if nobody had asked.
    Then, or at once, it drains: it takes no new connection, ends each with its next
    answer, and tells whoever is left at the end. Whoever starts it may be in haste
    later, and says so by no longer listening.
    """

    def __init__(  # noqa: PLR0913 - what ends
        self,
        asked: DrainFlag,
        slot: int,
        *,
        succession: Succession,
        handler: Handler,
        server: HttpServer,
        kept: KeptParts,
        health: Health,
    ) -> None:
        self._asked = asked
        self._slot = slot
        self._succession = succession
        self._asked_us: int | None = None
        self._has_successor = False
        self._handler = handler
        self._server = server
        self._kept = kept
        self._health = health

    def turn(self, now_us: int) -> None:
        """What is due; with every turn of the main loop."""
        drain = self._handler.drain
        if self._asked.is_set() and not drain.is_on and self._may_begin(now_us):
            self._begin(now_us)
        if drain.is_on and not self._succession.is_hoped_for:
            drain.hasten(now_us)
        over_us = drain.over_us(now_us)
        if over_us is None:
            return
        self._server.cut_off(drain.last_refusal())
        if over_us > ABORT_AFTER_US:
            self._server.abort()
        if over_us > GIVE_UP_AFTER_US:
            self._server.give_up()

    @property
    def state(self) -> ServiceState:
        """For others: one that waits for its successor drains, so that nobody takes it
        for one."""
        return ServiceState.DRAINING if self._asked.is_set() else self._health.state

    def heard(self, other: Heartbeat) -> None:
        """Another process said how it is."""
        if (
            self._asked_us is not None
            and (other.role, other.slot) == (Role.INGRESS, self._slot)
            and other.state is ServiceState.READY
        ):
            self._has_successor = True

    def _may_begin(self, now_us: int) -> bool:
        if self._asked_us is None:
            self._asked_us = now_us
            self._succession.ask()
        return (
            self._has_successor
            or now_us - self._asked_us > SUCCESSOR_WITHIN_US
            or not self._succession.is_hoped_for
        )

    def _begin(self, now_us: int) -> None:
        unanswered = len(self._handler.ends.waiters)
        get_log().info("drain.started", unanswered=unanswered)
        self._health.drain()
        self._handler.drain.begin(now_us, has_successor=self._has_successor)
        self._server.drain()
        self._kept.hurry()
