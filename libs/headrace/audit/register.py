"""Every life that an audit knows: by id, by its records, and as long as it waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from headrace.audit.events import Asked, Ended
from headrace.audit.limits import AuditLimits
from headrace.audit.lives import Life
from headrace.domain import Source

__all__ = ["Register"]


class Register:
    """``unsettled``: how many lives have a record without an end; ``forgotten``: how
    many were forgotten early."""

    def __init__(self, limits: AuditLimits) -> None:
        self.unsettled = 0
        self.forgotten = 0
        self._limits = limits
        self._of_id: dict[str, list[Life]] = {}
        self._at: dict[Source, Life] = {}
        self._open: dict[tuple[str, int], dict[int, Life]] = {}
        self._settled: deque[tuple[int, Life]] = deque()

    def at(self, place: Source) -> Life | None:
        return self._at.get(place)

    def of_id(self, request_id: str) -> Sequence[Life]:
        """Those of all tenants, as they began."""
        return self._of_id.get(request_id, ())

    def unsettled_lives(self) -> Iterator[Life]:
        for lives in self._of_id.values():
            for life in lives:
                if life.open:
                    yield life

    def enter(self, asked: Asked) -> None:
        """A life begins."""
        life = Life(asked)
        self._of_id.setdefault(asked.id, []).append(life)
        self.unsettled += 1
        self._note(life, asked.place)

    def add(self, life: Life, asked: Asked) -> None:
        """It has a further record, which needs an end unless all is over."""
        life.records[asked.place] = asked
        if life.is_over:
            self._at[asked.place] = life
        else:
            self.reopen(life, asked.place)

    def reopen(self, life: Life, place: Source) -> None:
        """One of its records needs an end, maybe after others had theirs."""
        self.unsettled += not life.open
        life.settled_us = None
        life.open[place] = life.records[place]
        self._note(life, place)

    def settle(self, life: Life, ended: Sequence[Source], at_us: int) -> None:
        """These of its open records have their end."""
        if not ended:
            return
        for place in ended:
            del life.open[place]
            del self._open[place[:2]][place.offset]
        life.is_over |= not life.is_keyed
        if not life.open:
            life.settled_us = at_us
            self.unsettled -= 1
            self._settled.append((at_us, life))

    def within(self, ended: Ended) -> list[tuple[Life, Source]]:
        """The records without an end in its ranges, each with its life."""
        topic, partition = ended.topic, ended.partition
        lives = self._open.get((topic, partition), {})
        found: list[int] = []
        for first, last in ended.ranges:
            if last - first < len(lives):
                among = range(first, last + 1)
                found += [each for each in among if each in lives]
            else:
                found += [each for each in lives if first <= each <= last]
        return [(lives[each], Source(topic, partition, each)) for each in found]

    def below(
        self, partition: tuple[str, int], offset: int
    ) -> Iterator[tuple[Life, Source]]:
        """The records without an end below an offset of a partition."""
        for number, life in self._open.get(partition, {}).items():
            if number >= offset:
                break
            yield life, Source(*partition, number)

    def forget(self, now_us: int) -> None:
        """Settled lives that are too old or too many."""
        settled = self._settled
        until_us = now_us - self._limits.remember_us
        while settled:
            settled_us, life = settled[0]
            is_early = settled_us >= until_us
            if is_early and len(settled) <= self._limits.remembered_max:
                break
            settled.popleft()
            if life.settled_us != settled_us:
                continue  # asked again since
            self.forgotten += is_early
            life.settled_us = None
            for source in life.records:
                del self._at[source]
            lives = self._of_id[life.asked.id]
            lives.remove(life)
            if not lives:
                del self._of_id[life.asked.id]

    def _note(self, life: Life, place: Source) -> None:
        self._at[place] = life
        lives = self._open.setdefault(place[:2], {})
        is_in_order = not lives or next(reversed(lives)) < place.offset
        lives[place.offset] = life
        if not is_in_order:
            self._open[place[:2]] = dict(sorted(lives.items()))
