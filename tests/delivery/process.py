"""A process that can be killed, frozen and thawed, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.delivery.world import World

__all__ = ["Process"]


class Process:
    """What happens to a frozen process waits until it is thawed, in order (A5)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ahead_us = world.random.randrange(10**9)
        self.is_dead = False
        self.silent_since_us: int | None = None
        """Dead or frozen since then."""

        self._waiting: list[Callable[[], None]] = []

    @property
    def is_frozen(self) -> bool:
        return self.silent_since_us is not None and not self.is_dead

    def now_us(self) -> int:
        """Its own monotonic clock."""
        return self.world.now_us + self._ahead_us

    def log_us(self, mono_us: int) -> int:
        return mono_us - self._ahead_us

    def mono_us(self, log_us: int) -> int:
        return log_us + self._ahead_us

    def call(self, action: Callable[[], None]) -> None:
        if self.is_frozen:
            self._waiting.append(action)
        elif not self.is_dead:
            action()

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.world.after(delay_us, partial(self.call, action))

    def die(self) -> None:
        self.is_dead = True
        self.silent_since_us = self.silent_since_us or self.world.now_us
        self._waiting.clear()

    def freeze(self) -> None:
        if not self.is_dead and self.silent_since_us is None:
            self.silent_since_us = self.world.now_us

    def thaw(self) -> None:
        """Everything that waited happens now; a process that looks at its clock first
        learns first how long it stood still."""
        if not self.is_frozen or self.silent_since_us is None:
            return
        frozen_us = self.world.now_us - self.silent_since_us
        self.silent_since_us = None
        waiting, self._waiting = self._waiting, []
        self.world.after(0, partial(self.call, partial(self.woke, frozen_us)))
        for action in waiting:
            self.world.after(0, partial(self.call, action))

    def woke(self, frozen_us: int) -> None:
        """Called first after a freeze."""
