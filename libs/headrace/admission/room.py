"""How much work may be ahead of a request."""

from __future__ import annotations

from typing import NamedTuple

from headrace.admission.settings import AdmissionSettings

__all__ = ["Room", "room_of"]


class Room(NamedTuple):
    """A part of the time limit, by the setting that gives it."""

    part: float
    setting: str
    in_batch: bool
    """Whether a request runs in a full batch there, or may run alone."""

    in_time: bool
    """Whether what is ahead also has to end within the time limit."""


def room_of(  # noqa: PLR0913 - all that bears on it
    settings: AdmissionSettings,
    *,
    limit_us: int,
    left_us: int,
    batch_us: int,
    versions: float,
    is_dear: bool,
    lull: float,
) -> Room:
    """``left_us`` of a time limit are left; ``versions`` share a slot.

    Full batches need one that runs, one that waits, and the request's own. Where
    several versions share a slot, as many have to wait, each gathering its own. When
    a request's turn comes is then not told by all that is ahead, since a batch is of
    one version.
    """
    least = settings.batches_within_limit_min
    if limit_us < least * batch_us:
        part, setting = settings.choice, "choice"
        if is_dear:
            part, setting = settings.fill * settings.dear_part, "fill * dear_part"
        return Room(part, setting, in_batch=False, in_time=False)
    full_us = (least - 1 + max(versions, 1.0)) * batch_us
    if is_dear or full_us <= settings.fill * left_us:
        return _longer(settings, lull)
    part = min(full_us / left_us, settings.choice)
    in_time = full_us <= limit_us
    return Room(part, "batches_within_limit_min", in_batch=True, in_time=in_time)


def _longer(settings: AdmissionSettings, lull: float) -> Room:
    """Where the device has too little to do now and then, what is refused at the end of
    a burst could have been served after it: up to all that ends in time may be ahead.
    A device that always has enough serves no more for a longer queue. Nor is a time
    limit of few batches stretched: what comes on the edge of it is late by any error of
    the run times."""
    part, setting = settings.fill, "fill"
    if lull:
        part += (1 - part) * lull
        setting += ", and more as the device had little to do of late"
    return Room(part, setting, in_batch=True, in_time=True)
