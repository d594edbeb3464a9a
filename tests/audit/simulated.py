"""What a simulated lane, its production decision objects and all, leaves in the log of
requests with keys, as the events of an audit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from headrace.audit.events import (
    Asked,
    Cancelled,
    Committed,
    DeadLettered,
    Ended,
    Event,
    Ran,
    Resulted,
)
from headrace.domain import (
    DeadLetter,
    Done,
    MemberStatus,
    Priority,
    ReplyAddress,
    Source,
    StaleWritten,
    Terminal,
    is_final,
)
from headrace.wire.kept import is_keyed
from headrace.wire.topics import Topics
from tests.delivery.broker import Partition
from tests.delivery.builders import MS, SECOND, TOPICS
from tests.delivery.former_process import FormerProcess
from tests.delivery.history import History
from tests.delivery.records import Ask, Cancel, Reply
from tests.delivery.world import World

__all__ = ["KeyedWorld"]

KEPT = ReplyAddress(TOPICS.results("t", "keyed"), None)


class KeyedWorld(World):
    """Its clients send a few requests with each key, and some repeat one at once, or a
    little later, when it was refused."""

    def __init__(self, seed: int, kinds: frozenset[str] | None) -> None:
        super().__init__(
            seed,
            kinds=kinds,
            strikes=6,
            wreckers=False,
            keyed=1.0,
            run_us=(20 * MS, 300 * MS),
        )
        self.history: Recorder = Recorder(self)

    def _ask_by_key(self) -> None:
        request_id = f"{self.next_id():012x}8{0:019x}"
        begin_us = self.random.randrange(SECOND)
        for _ in range(self.random.randint(1, 3)):
            at_us = begin_us + self.random.randrange(500 * MS)
            self.after(at_us, partial(self.ask_again, request_id))

    def ask_again(self, request_id: str) -> None:
        random = self.random
        priority = random.choice(list(Priority))
        partition = TOPICS.requests("m"), Topics.request_partition(0, priority)
        limit_us = random.choice([100 * MS, 400 * MS, 2 * SECOND, 10 * SECOND])
        ask = Ask(request_id, deadline_log_us=self.now_us + limit_us, reply_to=KEPT)
        self._again(partition, ask)
        if random.random() < 0.05:
            cancel = partial(self._again, partition, Cancel(ask))
            self.after(random.randrange(100 * MS), cancel)

    def refused(self, request_id: str) -> None:
        random = self.random
        if random.random() < 0.7:
            delay_us = random.choice([5 * MS, 30 * MS, 100 * MS, 500 * MS])
            after_us = 2 * MS + random.randrange(delay_us)
            self.after(after_us, partial(self.ask_again, request_id))


class Recorder(History):
    def __init__(self, world: KeyedWorld) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._world = world
        self._commits = 0

    def appended(self, partition: Partition, record: object) -> None:
        super().appended(partition, record)
        offset = len(self._world.log.records[partition]) - 1
        place = Source(*partition, offset)
        self.events += _events(record, place, self._world.now_us)
        if isinstance(record, Terminal) and not is_final(record.reason):
            self._world.refused(record.id)

    def committed(
        self, process: FormerProcess, partition: Partition, offset: int, metadata: str
    ) -> None:
        super().committed(process, partition, offset, metadata)
        self._commits += 1
        place = Source("commits", 0, self._commits)
        self.events.append(
            Committed(place, self._world.now_us, *partition, offset, metadata)
        )


def _events(record: object, place: Source, at_us: int) -> Iterable[Event]:
    match record:
        case Ask(id=request_id, reply_to=reply_to, deadline_log_us=deadline_us):
            yield Asked(
                place=place,
                at_us=at_us,
                id=request_id,
                tenant="t",
                model="m",
                address=reply_to,
                deadline_us=deadline_us,
                is_keyed=is_keyed(request_id),
            )
        case Cancel(ask=ask):
            yield Cancelled(place, at_us, ask.id, "t", ask.reply_to)
        case Reply(sources=sources):
            # Of a topic of results each is a record; here they are written together.
            for number, source in enumerate(sources):
                own = place._replace(offset=1_000 * place.offset + number)
                yield Resulted(own, at_us, source, b"same")
        case Terminal(source=source, reason=reason):
            own = place._replace(offset=1_000 * place.offset)
            yield Resulted(own, at_us, source, None, reason.value)
        case DeadLetter(source=source, reason=reason):
            yield DeadLettered(place, at_us, source, reason.value)
        case StaleWritten(topic, partition, ranges):
            yield Ended(place, at_us, topic, partition, ranges)
        case Done(members=members):
            ran = [each.source for each in members if each.status is MemberStatus.OK]
            yield Ran(place, at_us, tuple(ran))
        case _:
            pass
