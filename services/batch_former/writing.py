"""What a lane writes: its decisions as records, and where they go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import assert_never

import msgspec

from headrace.delivery import LogClock
from headrace.delivery.decisions import (
    OpenLink,
    WriteBatch,
    WriteClaim,
    WriteDeadLetters,
    WriteReplies,
    WriteStale,
    WriteSync,
)
from headrace.domain import Priority, ServedVersion, StaleWritten, Terminal
from headrace.errors import RequestError
from headrace.telemetry import get_log
from headrace.wire import (
    JSON_HEADERS,
    PROTOBUF_HEADERS,
    BatchStamp,
    Claim,
    Outgoing,
    Sync,
    Topics,
    encode_batch,
    encode_completion,
    encode_json,
    encode_refusals,
    encode_sync,
    plain_refusal,
)
from services.batch_former.deadletters import DeadLetters
from services.batch_former.lanes import OwnedLane
from services.batch_former.linking import Linking
from services.batch_former.measuring import Measuring
from services.batch_former.producing import ANY, Place, Producing, Write

__all__ = ["CLAIM", "Writing"]

CLAIM = -1
"""The number of a claim, which has none of its own."""


WriteDecision = (
    WriteBatch
    | WriteReplies
    | OpenLink
    | WriteSync
    | WriteDeadLetters
    | WriteStale
    | WriteClaim
)


class Writing:
    """Two producers: what goes to workers keeps its order, and is not held up by what
    goes to clients. Beside them, links to workers of this machine."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        topics: Topics,
        claim: Claim,
        log_clock: LogClock,
        *,
        started_us: int,
        version_of: Callable[[str, str], ServedVersion],
        measuring: Measuring,
        orders: Producing,
        answers: Producing,
        linking: Linking,
        dead_letters: DeadLetters,
    ) -> None:
        self._topics = topics
        self._claim = claim
        self._started_us = started_us
        self._log_clock = log_clock
        self._version_of = version_of
        self._measuring = measuring
        self._orders = orders
        self._answers = answers
        self._linking = linking
        self._dead_letters = dead_letters
        self._log = get_log()

    def write(self, owned: OwnedLane, decision: WriteDecision, now_us: int) -> None:
        """Every numbered write that goes through the log ends once, as ``WritesEnded``
        in the inbox."""
        match decision:
            case WriteBatch():
                self._batch(owned, decision, now_us)
            case WriteReplies():
                self._replies(owned, decision)
            case OpenLink():
                self._linking.open(decision)
            case WriteSync(slot=slot, epoch=epoch, k=k):
                former = self._claim.former
                sync = Sync(owned.lane, epoch, former, k, decision.incarnation)
                write = Write(owned.lane, owned.term, decision.write)
                self._order(decision.link, write, slot, encode_sync(sync))
            case WriteDeadLetters(letters=letters):
                self._measuring.dead_letters(letters)
                count = len(letters)
                write = Write(owned.lane, owned.term, decision.write, records=count)
                self._dead_letters.write(write, letters)
            case WriteStale(topic=topic, partition=partition, ranges=ranges):
                stale = encode_completion(StaleWritten(topic, partition, ranges))
                self._answers.write(
                    Write(owned.lane, owned.term, decision.write),
                    Place(self._topics.completions, owned.lane),
                    Outgoing(None, PROTOBUF_HEADERS, stale),
                )
            case WriteClaim():
                started_us = self._log_clock.to_log(self._started_us)
                claim = msgspec.structs.replace(self._claim, started_us=started_us)
                self._answers.write(
                    Write(owned.lane, owned.term, CLAIM),
                    Place(self._topics.lanes, owned.lane),
                    Outgoing(None, JSON_HEADERS, encode_json(claim)),
                )
            case _:
                assert_never(decision)

    def release(self) -> None:
        """Send the batches of bulk that were decided together."""
        self._orders.release()

    def _batch(self, owned: OwnedLane, decision: WriteBatch, now_us: int) -> None:
        dispatch = decision.dispatch
        latest_us = dispatch.latest_start_us
        stamp = BatchStamp(
            lane=decision.lane,
            epoch=decision.epoch,
            former=self._claim.former,
            incarnation=decision.incarnation,
            lease_us=decision.lease_us,
            latest_start_us=None
            if latest_us is None
            else self._log_clock.to_log(latest_us),
        )
        write = Write(owned.lane, owned.term, decision.write)
        first = dispatch.requests[0]
        try:
            served = self._version_of(first.model, first.version)
            value = encode_batch(dispatch, stamp, served)
        except RequestError as error:
            # The version changed its files or is gone since the requests were read:
            # the lease ends the batch, and the lane decides anew.
            self._log.warning("batch.refused", batch=dispatch.batch, text=str(error))
            self._orders.refuse(write)
            return
        is_bulk = first.priority is Priority.BULK
        self._order(decision.link, write, dispatch.slot, value, waits=is_bulk)
        self._measuring.dispatched(owned.lane, decision, now_us)

    def _order(
        self,
        link: int | None,
        write: Write,
        slot: int,
        value: bytes,
        *,
        waits: bool = False,
    ) -> None:
        """``waits``: until :meth:`release`, or an order that does not."""
        if link is not None:
            self._linking.send(link, value)
            return
        place = Place(self._topics.batches, slot)
        outgoing = Outgoing(None, PROTOBUF_HEADERS, value)
        (self._orders.hold if waits else self._orders.write)(write, place, outgoing)

    def _replies(self, owned: OwnedLane, decision: WriteReplies) -> None:
        self._measuring.refused(decision.terminals)
        records: list[tuple[Place, Outgoing]] = []
        shared = defaultdict[Place, list[Terminal]](list)
        for terminal in decision.terminals:
            topic, partition = terminal.reply_to
            if partition is None:
                records.append((Place(topic, ANY), plain_refusal(terminal)))
            else:
                shared[Place(topic, partition)].append(terminal)
        for place, terminals in shared.items():
            value = encode_refusals(decision.epoch, terminals)
            records.append((place, Outgoing(None, PROTOBUF_HEADERS, value)))
        write = Write(owned.lane, owned.term, decision.write, records=len(records))
        for place, outgoing in records:
            self._answers.write(write, place, outgoing)
