"""When a batch former tells the ingresses what waits and runs in its lanes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.domain import Load, Priority

__all__ = ["Publishing"]

QUIET_US = 200_000
CALM_US = 50_000
PRESSED_US = 15_000
"""Where requests wait for the device, ingresses refuse by what they are told: 70 small
records a second. Every process reads each, so where nobody waits they are fewer."""

BUSY_US = 1_000_000
"""For so long after the last request. That a queue has become empty is news as well."""

WAIT_US_MAX = 10_000
"""What lies before a request in the former and in the workers, as device time: more
is a wait for the device."""


class Publishing:
    """The pace of one former: it looks at its lanes at ``at_us``."""

    def __init__(self) -> None:
        self.at_us = 0
        self._busy_until_us = 0
        self._every_us = CALM_US

    def received(self, now_us: int) -> None:
        """Requests came: the next look comes forward."""
        self._busy_until_us = now_us + BUSY_US
        self.at_us = min(self.at_us, now_us + self._every_us)

    def looked(self, loads: Sequence[Load], now_us: int) -> bool:
        """The lanes' load as of now; whether to tell it at once. What is not is told
        by the next heartbeat."""
        is_pressed = any(_wait_us(load) > WAIT_US_MAX for load in loads)
        self._every_us = PRESSED_US if is_pressed else CALM_US
        tells = now_us < self._busy_until_us or any(map(_is_busy, loads))
        self.at_us = now_us + (self._every_us if tells else QUIET_US)
        return tells


def _wait_us(load: Load) -> int:
    """Of who may be refused; bulk waits as long as it takes."""
    return max(load.free_us, default=0) + sum(
        each.backlog_us for each in load.queues if each.priority is not Priority.BULK
    )


def _is_busy(load: Load) -> bool:
    """Whether anything waits or runs."""
    return bool(load.queues) or any(load.free_us)
