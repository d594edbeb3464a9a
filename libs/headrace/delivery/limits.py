"""The limits of one lane, each with what happens when it is reached."""

from __future__ import annotations

from pydantic import BaseModel, NonNegativeInt, PositiveInt

__all__ = ["LaneLimits"]


class LaneLimits(BaseModel, frozen=True, extra="forbid"):
    """Durations in microseconds. The defaults are those of the delivery protocol; a
    lane's successor must have the same ``cap``."""

    cap: PositiveInt = 16
    """Credit: most batches that one worker process holds. A slot that holds as many
    gets nothing more until a ``done``; the scheduler uses more than two for small bulk
    runs alone."""

    silent_us: PositiveInt = 1_000_000
    """Log time after which a worker without a heartbeat is taken for dead: what flies
    there is tried elsewhere."""

    heartbeat_late_us: PositiveInt = 500_000
    """Leases stand still while our own heartbeat is not read back for so long, since
    it is then our reading that is slow and not the worker; and log time in which no
    heartbeat at all was written for so long makes nobody silent."""

    lease_factor: PositiveInt = 3
    lease_slack_us: PositiveInt = 200_000
    lease_min_us: PositiveInt = 300_000
    """A lease is ``factor`` times the predicted p99 of all that lies before the batch
    and of itself, plus the slack."""

    store_wait_us: PositiveInt = 5_000_000
    """Longest that a batch waits for the payload store in its worker, by which its
    lease is longer. Follows from HEADRACE_BUS__PAYLOAD_TIMEOUT_MS."""

    run_unknown_us: PositiveInt = 10_000_000
    """Taken for the p99 of a run of which nothing was announced."""

    ask_again_us: PositiveInt = 1_000_000
    """A slot that is heard and has not reported for so long is asked again."""

    census_us: PositiveInt = 150_000
    """Longest that a takeover waits for the reports of the slots that are heard."""

    drain_us: PositiveInt = 500_000
    """Longest that a lane being left waits for what flies; the rest is adopted by the
    successor."""

    flush_us: PositiveInt = 300_000
    """Longest that it waits, after that, for the acks of what it wrote."""

    commit_us: PositiveInt = 200_000
    """Between two commits of the partitions that moved."""

    commit_all_us: PositiveInt = 10_000_000
    """Between two commits of all partitions, which keep ``c`` fresh and offsets from
    expiring."""

    again_us: PositiveInt = 50_000
    """Pause before a step of a takeover, or a write, is tried again."""

    attempts_online: PositiveInt = 2
    attempts_bulk: PositiveInt = 5
    """Most runs by one owner of the lane; then the request ends with an error."""

    losses_max: PositiveInt = 3
    """Workers lost with a request on board, by one owner; then it ends with the reason
    ``crash`` and a dead letter, whatever attempts it has left."""

    retry_percent: NonNegativeInt = 10
    retry_burst: PositiveInt = 4_096
    """The retry budget of a model version: so many attempts beyond the first for a
    hundred first ones, and so many saved up at most. Where it is spent, an online
    request ends with ``attempts_exhausted`` at its first failure, and bulk waits
    ``backoff_max``. The halves of a batch that failed cost nothing."""

    backoff_us: PositiveInt = 250_000
    backoff_max_us: PositiveInt = 10_000_000
    """Bulk waits ``backoff`` times 2, 4, 8 … before its next attempt."""

    flying_max_us: PositiveInt = 600_000_000
    """D19: a request that was first dispatched so long ago ends with an error, which
    bounds how far back a successor reads completions."""

    stale_us: NonNegativeInt = 60_000_000
    """An online request that is so far past its deadline gets no reply."""

    deaths_to_suspect: PositiveInt = 2
    """After so many owners in a row that ended while a partition stood still with
    something unread, its records are read one at a time."""

    suspects_max: PositiveInt = 4_096
    suspect_us: PositiveInt = 100_000
    """So many at most; the next one follows when one has its end, or nothing has
    happened for so long."""

    suspect_deaths: PositiveInt = 2
    """A record at which so many owners ended, while they read it by itself, is a dead
    letter with the reason ``crash``, unread."""

    cancel_memory_us: PositiveInt = 10_000_000
    cancels_max: PositiveInt = 10_000
    """How long, and how many, cancels are remembered that name no request read so far,
    for one that comes behind them; beyond, the oldest is forgotten and its request
    runs."""

    key_memory_us: PositiveInt = 600_000_000
    """How long idempotency keys are remembered after their answer."""

    keys_max: PositiveInt = 100_000
    """How many are remembered; beyond, the oldest is forgotten and runs anew."""

    unsettled_max: PositiveInt = 4_096
    unsettled_bytes_max: PositiveInt = 64 * 1024 * 1024
    span_max: PositiveInt = 65_536
    """Most requests, bytes, and offsets between the watermark and the reader, in one
    partition; at any of them its reading pauses until half is settled."""

    def attempts_max(self, *, bulk: bool) -> int:
        return self.attempts_bulk if bulk else self.attempts_online
