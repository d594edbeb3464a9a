"""Every event that a service logs: ``noun.verb``, past tense.

One list, so that a misspelt name fails the type check and an operator can look up
what there is to search for. Facts travel as keys beside the event, never in its name.
"""

from __future__ import annotations

from typing import Literal, Protocol

__all__ = ["Fact", "Log", "LogEvent"]

Fact = str | int | float | bool | None | BaseException
"""What an event may carry; ``exc_info`` takes an exception."""

LogEvent = Literal[
    "admin.listening",
    "batch.dispatched",
    "batch.failed",
    "batch.refused",
    "cancel.unknown",
    "claim.timed_out",
    "commit.refused",
    "commit.unavailable",
    "dead_letter.written",
    "drain.ended",
    "drain.started",
    "epoch.outrun",
    "files.not_tidied",
    "files.tidied",
    "group.fenced",
    "http.failed",
    "http.listening",
    "job.ended",
    "job.failed",
    "job.runner_ended",
    "job.runner_failed",
    "job.taken",
    "job.waits",
    "lane.active",
    "lane.dropped",
    "lane.lost",
    "lane.revoked",
    "lane.taken",
    "lease.lapsed",
    "library.logged",
    "link.found",
    "link.lost",
    "link.opened",
    "link.refused",
    "log.unavailable",
    "log_clock.set",
    "loop.paused",
    "loop.stalled",
    "model.announced",
    "model.failed",
    "model.fitness",
    "model.loading",
    "model.mismatched",
    "model.ready",
    "model.refused",
    "model.unloaded",
    "payloads.available",
    "payloads.deleted",
    "payloads.unavailable",
    "position.lost",
    "process.failed",
    "process.fenced",
    "process.ready",
    "process.replaced",
    "process.started",
    "process.stopped",
    "produce.failed",
    "read.failed",
    "record.undecodable",
    "reply.duplicated",
    "reply.unknown",
    "request.failed",
    "request.rejected",
    "retention.gap",
    "run.limit_passed",
    "run.out_of_memory",
    "run.rows_blamed",
    "run.stopped",
    "setup.refused",
    "slot.joined",
    "slot.silent",
    "topic.missing",
    "topics.provisioned",
    "verdict.pending",
    "worker.cap_exceeded",
]


class Log(Protocol):
    """A structured logger (structlog's, typed)."""

    def debug(self, event: LogEvent, **facts: Fact) -> None: ...

    def info(self, event: LogEvent, **facts: Fact) -> None: ...

    def warning(self, event: LogEvent, **facts: Fact) -> None: ...

    def error(self, event: LogEvent, **facts: Fact) -> None: ...

    def critical(self, event: LogEvent, **facts: Fact) -> None: ...
