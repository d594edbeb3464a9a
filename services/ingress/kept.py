"""Which requests have an answer among those that are kept in the log.

Pure: told what was read from the topics of kept answers, of which it knows where each
lies. What it has not read, or has forgotten, it does not claim to know.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.domain import Source

__all__ = ["Kept", "KeptAnswers", "Key"]


class Key(NamedTuple):
    """``id`` is unique in its topic, which is of one tenant."""

    topic: str
    id: str


class Kept(NamedTuple):
    """An answer in the log. ``asked``: the request record that it answers;
    ``is_final``: it is the answer to every repetition."""

    place: Source
    log_us: int
    asked: Source
    is_final: bool
    is_success: bool = False

    def makes_good(self, before: Kept) -> bool:
        """Whether ``before`` is an error, and its request was put back and has a
        success now. One of the same record came too late to be its answer."""
        is_mended = self.is_success and not before.is_success
        return is_mended and self.asked != before.asked


class KeptAnswers:
    """At most ``known_max`` answers; beyond, the oldest is forgotten, and whoever asks
    for one from its time on has to look into the log. ``memory_us``: how long a key is
    remembered."""

    def __init__(self, known_max: int, memory_us: int) -> None:
        self._known_max = known_max
        self._memory_us = memory_us
        self._known: dict[Key, tuple[Kept, int]] = {}
        self._since_us: dict[str, int] = {}

    def follow(self, topic: str, since_us: int) -> None:
        """Everything appended to ``topic`` since that log time is going to be added."""
        self._since_us[topic] = since_us

    def covers(self, topic: str, since_us: int) -> bool:
        """Whether every answer appended since then is known, if there is one."""
        known_us = self._since_us.get(topic)
        return known_us is not None and known_us <= since_us

    def add(self, key: Key, kept: Kept) -> bool:
        """Take note of an answer; False: it repeats a final one, which stands for as
        long as its key is remembered, or until it is made good, or was added before."""
        before = self.find(key)
        if before is not None and (
            before.place == kept.place
            or (
                before.is_final
                and kept.log_us < before.log_us + self._memory_us
                and not kept.makes_good(before)
            )
        ):
            self._known[key] = before, kept.log_us
            return False
        self._known.pop(key, None)  # to the end of the order
        self._known[key] = kept, kept.log_us
        if len(self._known) > self._known_max:
            oldest = next(iter(self._known))
            since_us = self._known.pop(oldest)[1] + 1
            self._since_us[oldest.topic] = max(
                since_us, self._since_us.get(oldest.topic, since_us)
            )
        return True

    def find(self, key: Key) -> Kept | None:
        """The first final answer, but for one made good, or the last of any."""
        known = self._known.get(key)
        return None if known is None else known[0]
