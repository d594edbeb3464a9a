"""What happened in the simulated log, and the promises that must hold of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from headrace.delivery import CommitMetadata
from headrace.domain import (
    DeadLetter,
    Done,
    MemberStatus,
    Reason,
    Source,
    StaleWritten,
    Terminal,
    is_final,
)
from headrace.wire.kept import is_keyed
from tests.delivery.builders import TOPICS
from tests.delivery.records import Ask, Cancel, Reply

if TYPE_CHECKING:
    from tests.delivery.broker import Partition
    from tests.delivery.former_process import FormerProcess

__all__ = ["History"]


class History:
    """The evidence of every request, as it lands in the log (§13 of the protocol)."""

    def __init__(self) -> None:
        self.asked: dict[Partition, list[Ask | Cancel]] = defaultdict(list)
        self.successes: dict[str, int] = defaultdict(int)
        self.errors: dict[str, list[Reason]] = defaultdict(list)
        self.letters: dict[str, list[Reason]] = defaultdict(list)
        self.visible: dict[str, str] = {}
        self.ended: set[str] = set()
        """Ids with evidence."""
        self.unheard: set[str] = set()
        """Keys with a record that no answer is final for, and none came after."""
        self._answered: set[str] = set()

        self.epochs: list[int] = []
        self._confirmed: dict[FormerProcess, set[int]] = defaultdict(set)
        self.runs: dict[str, int] = defaultdict(int)

    def appended(self, partition: Partition, record: object) -> None:
        topic = partition[0]
        match record:
            case Ask():
                self.asked[partition].append(record)
                self._listen(record.id)
            case Cancel():
                self.asked[partition].append(record)
                self.ended.add(record.id)
            case Reply(ids=ids):
                assert topic == TOPICS.replies or ".results." in topic
                for each in ids:
                    self.successes[each] += 1
                    self._end(each, "success", None)
            case Terminal(id=each, reason=reason):
                assert self.asked, "an error for nothing"
                self.errors[each].append(reason)
                self._end(each, "error", reason)
            case DeadLetter(id=each, reason=reason, source=source):
                # One that was never read is known by its place alone.
                each = each or self.asked[source[:2]][source.offset].id
                self.letters[each].append(reason)
                self.ended.add(each)
            case StaleWritten():
                for first, last in record.ranges:
                    lost = self.asked[record.topic, record.partition][first : last + 1]
                    self.ended.update(ask.id for ask in lost)
            case Done():
                self._done(record)
            case _:
                pass

    def _done(self, done: Done) -> None:
        """W5: a success is said after it is acked, and without an address it is the
        evidence itself."""
        for member in done.members:
            if member.status is MemberStatus.OK:
                ask = self._ask_at(member.source)
                if ask.reply_to is None:
                    self.successes[ask.id] += 1
                    self.ended.add(ask.id)
                assert self.successes[ask.id], f"{ask.id} is done before its reply"

    def committed(
        self, process: FormerProcess, partition: Partition, offset: int, metadata: str
    ) -> None:
        """D10."""
        for ask in self.asked[partition][:offset]:
            assert ask.id in self.ended, f"committed past {ask.id} without evidence"
        parsed = CommitMetadata.parse(metadata)
        assert parsed is not None
        self._confirmed[process].add(parsed.epoch)

    def wrote_under(self, process: FormerProcess, epoch: int, *, owns: bool) -> None:
        """D13: a former decided to write under ``epoch``; one that was superseded and
        does not know it yet may do so under its old one."""
        assert epoch in self._confirmed[process], f"epoch {epoch} is not confirmed"
        if owns and epoch not in self.epochs:
            assert epoch > max(self.epochs, default=-1), "epochs fall"
            self.epochs.append(epoch)

    def _ask_at(self, source: Source) -> Ask:
        ask = self.asked[source.topic, source.partition][source.offset]
        assert isinstance(ask, Ask)
        return ask

    def _listen(self, each: str) -> None:
        if is_keyed(each) and each not in self._answered:
            self.unheard.add(each)

    def _end(self, each: str, what: str, reason: Reason | None) -> None:
        self.visible.setdefault(each, what)
        self.ended.add(each)
        self.unheard.discard(each)
        if is_final(reason):
            self._answered.add(each)
