"""The limits of one worker process."""

from __future__ import annotations

from pydantic import BaseModel, PositiveInt

__all__ = ["FINISHED_KEPT", "WorkerLimits"]

FINISHED_KEPT = 256
"""Batches whose ``done`` is acked that a worker remembers: a copy of their record is
passed over. An older one is run again, and its second replies count for nothing."""


class WorkerLimits(BaseModel, frozen=True, extra="forbid"):
    """Limits of one worker process; every duration in microseconds."""

    cap: PositiveInt = 16
    """Most unfinished batches: one that runs, and what lies ready behind it. A batch
    beyond it is refused, which no former that keeps the protocol will see."""

    reply_wait_us: PositiveInt = 500_000
    """How long a batch with an ingress waiting waits for the acks of its replies;
    what is not acked by then is reported so, and run again."""

    result_wait_us: PositiveInt = 30_000_000
    """The same for a batch of bulk members alone, whom nobody waits for."""

    run_min_us: PositiveInt = 10_000_000
    run_max_us: PositiveInt = 540_000_000
    run_factor: PositiveInt = 10
    """The run limit: a run is stopped, and the process ends, after ``run_factor`` times
    the longest of the last runs of that size, within these two. Its members run again
    elsewhere; with a member that does so three times the reason is ``crash``."""

    patience_percent: PositiveInt = 40
    """A run of several members, an ingress waiting for one, is stopped, and its members
    tried in halves, when it has taken so much of the time that they had left (of 5 s
    where bulk rides along, which has no limit), and ``run_factor`` times what the last
    runs of the version took at most and what was expected, and ``patience_min``. A run
    of one member has all the time that it had left."""

    patience_runs: PositiveInt = 4
    """Not before so many runs of the version have ended in the process: first runs may
    take many times as long as others."""

    patience_min_us: PositiveInt = 250_000
    doubt_factor: PositiveInt = 3
    """After such a stop, until its members' time is over, runs of several are stopped
    after ``doubt_factor`` times what the last ones took at most and ``patience_min``,
    and those of one member as the first was. Who is stopped alone in the last attempt
    ends with the reason ``expired``."""

    run_end_wait_us: PositiveInt = 5_000_000
    """How long a stopped run may take to end, and all that is held to be handed back;
    then the run's batch is handed back while it goes on."""

    hand_back_wait_us: PositiveInt = 2_000_000
    """How long the ack of that may take; then the process ends without it, and the
    former learns of it from the silence."""

    memory_kept_us: PositiveInt = 60_000_000
    """How long a slot takes only half of the rows that ran out of memory; then twice
    as many again, and so on."""

    breaker_failures: PositiveInt = 5
    """Runs of a version that fail in a row before the slot takes no more of it, unless
    a made-up row still runs: then it is the senders' rows that fail."""

    breaker_us: PositiveInt = 5_000_000
    breaker_max_us: PositiveInt = 60_000_000
    """For how long, the first time; twice as long after each try that fails, up to
    ``breaker_max``. A try takes one row at a time."""

    done_unacked_us: PositiveInt = 60_000_000
    """A ``done`` unacked for so long on a live bus: the producer is broken, the
    process ends."""

    bus_live_us: PositiveInt = 2_000_000
    """The bus counts as alive for so long after a heartbeat's ack."""

    leave_quiet_us: PositiveInt = 300_000
    """A draining worker with nothing to do waits for batches that were sent before
    its report was read: running one is cheaper than its retry elsewhere."""
