"""A partition that was just made has no leader for a moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from headrace.broker import KafkaConnection, KafkaReader, TopicPartition
from headrace.errors import BusError

ONE = TopicPartition("t", 0)


class Unled(KafkaReader):
    """Of a log whose leader comes after some questions."""

    def __init__(self, refusals: int, code: str) -> None:
        super().__init__(KafkaConnection("127.0.0.1:9", "test"))
        self.refusals = refusals
        self.code = code

    def _offsets(
        self, partitions: Sequence[TopicPartition], _which: int, _timeout_s: float
    ) -> dict[TopicPartition, int]:
        if self.refusals:
            self.refusals -= 1
            raise BusError("refused", code=self.code)
        return dict.fromkeys(partitions, 7)


QUESTIONS: list[Callable[[KafkaReader, float], object]] = [
    lambda reader, timeout_s: reader.offsets_since([ONE], 0, timeout_s),
    lambda reader, timeout_s: reader.log_ranges([ONE], timeout_s),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_whoever_asks_waits_for_a_leader(
    question: Callable[[KafkaReader, float], object],
) -> None:
    reader = Unled(2, "NOT_LEADER_FOR_PARTITION")
    assert question(reader, 60)
    reader.close()


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("code", "timeout_s"), [("NOT_LEADER_FOR_PARTITION", 0), ("_TRANSPORT", 60)]
)
def test_no_leader_in_time_and_any_other_error_are_told(
    question: Callable[[KafkaReader, float], object], code: str, timeout_s: float
) -> None:
    reader = Unled(1_000, code)
    with pytest.raises(BusError) as refused:
        question(reader, timeout_s)
    assert refused.value.code == code
    reader.close()
