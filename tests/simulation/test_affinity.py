"""Workers mostly run the version that they ran last, and no answer is lost for it."""

from __future__ import annotations

from itertools import count

import pytest

from headrace.domain import Dispatch, Event, Load, Priority, SchedulerDecision
from headrace.scheduling import BatchFormer, SchedulingSettings, online
from headrace.simulation import ModelSpec, Pool, Stream, World

MODELS = tuple(range(5))
WORKERS = 8
CAPACITY = WORKERS * 32 / 0.013


class Watched:
    """A former, and how many batches found their version's last run at their slot."""

    def __init__(self) -> None:
        ids = (str(number) for number in count())
        self._former = BatchFormer(SchedulingSettings(), batch_ids=ids)
        self._last: dict[int, str] = {}
        self.batches = self.at_home = 0

    def handle(self, event: Event, now_us: int) -> list[SchedulerDecision]:
        decisions = self._former.handle(event, now_us)
        for each in decisions:
            if isinstance(each, Dispatch):
                model = each.requests[0].model
                self.batches += 1
                self.at_home += self._last.get(each.slot) == model
                self._last[each.slot] = model
        return decisions

    def wakeup_at_us(self) -> int | None:
        return self._former.wakeup_at_us()

    def load(self, now_us: int) -> Load:
        return self._former.load(now_us)


def played(load: float) -> tuple[int, float]:
    """Answers in time, and the part of batches at home."""
    former = Watched()
    stream = Stream(
        rate=load * CAPACITY,
        end_s=0.8,
        models=MODELS,
        shapes=1,
        tenant="t",
        priority=Priority.STANDARD,
        limit_us=100_000,
    )
    pool = Pool(workers=WORKERS, admission=False)
    models = [ModelSpec(name=f"m{number}") for number in MODELS]
    results = World(pool, models, [stream], lambda: former).run()
    return results.of().on_time, former.at_home / former.batches


@pytest.mark.parametrize("load", [0.7, 1.5])
def test_versions_stay_where_they_ran_at_no_cost(
    monkeypatch: pytest.MonkeyPatch, load: float
) -> None:
    in_time, at_home = played(load)
    monkeypatch.setattr(online, "NEAR_PART", 0.0)
    in_time_without, at_home_without = played(load)

    assert at_home_without < 0.4
    assert at_home > 0.7
    assert in_time >= 0.995 * in_time_without
