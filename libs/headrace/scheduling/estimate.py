"""How long a batch will run: learned per model version, shape and number of rows.

A worker runs exactly the rows that it was sent, so times of neighbouring sizes are
made comparable by an affine fit and the measured ones of a ladder step (powers of
two, the probed sizes and the limit) correct it: profiles of real models are flat,
stepped or linear, and the fit alone is up to two thirds off.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping

__all__ = ["PacedTimes", "RunTimes"]

SAMPLES_FIT = 256
SAMPLES_STEP = 64
SAMPLES_TRUSTED = 5
SAMPLES_FIT_TRUSTED = 16
MARGIN_MIN, MARGIN_MAX = 1.05, 1.25
REFRESH_EVERY = 8
REFRESH_ALWAYS_BELOW = 8
DRIFT_UP = 1.1
DRIFT_DOWN = 0.99
DRIFT_MAX = 2.0
OVERRUN_RATE_MAX = 0.05
SLOWER_FACTOR, SLOWER_RUNS = 1.1, 5
FASTER_FACTOR, FASTER_RUNS = 0.75, 16
"""So many runs in a row beyond these factors of the bound and of the expected time
are another device: a neighbour, a lower clock."""
SLOWER_RUNS_SUSPECTED = 2
"""Where other versions on the same workers have just become slower."""
OVERRUN_MEMORY = 100
UNKNOWN_US = 10_000
"""Expected run time of a version that announced nothing and never ran."""
UNKNOWN_EXTREME_US = 10_000_000
"""Its 99th percentile, from which the delivery protocol builds leases (§6.4)."""


BELIEVED_US = 1_000_000
"""For how long requests are given up by run times that no run has confirmed since."""


class RunTimes:
    """Run times in microseconds by rows, from 1 to ``rows_max``.

    ``expected(rows)`` is the mean; ``bound(rows)`` the quantile by which deadlines
    are judged; ``extreme(rows)`` the 99th percentile for leases. All three never fall
    with more rows.
    """

    def __init__(
        self, rows_max: int, prior_us: Mapping[int, int], *, quantile: float
    ) -> None:
        self.rows_max = rows_max
        self._quantile = quantile
        steps = {1 << n for n in range(rows_max.bit_length()) if 1 << n <= rows_max}
        steps |= {rows_max, *(rows for rows in prior_us if 1 <= rows <= rows_max)}
        self.ladder = sorted(steps)
        self._prior = sorted(
            (rows, us) for rows, us in prior_us.items() if 1 <= rows <= rows_max
        )
        self._recent: deque[tuple[int, int]] = deque(maxlen=SAMPLES_FIT)
        self._steps: list[deque[tuple[int, int]]] = [
            deque(maxlen=SAMPLES_STEP) for _ in self.ladder
        ]
        self._seen = 0
        self._slower: list[tuple[int, int]] = []
        """Runs in a row that what is known of their size does not explain. They are
        kept apart until it is settled what they tell."""
        self._faster = 0
        self._is_suspected = False
        self._doubted_at_us: int | None = None
        self.observed_at_us = -BELIEVED_US
        self._drift = 1.0
        self._overrun_rate = 0.0
        self._expected: list[int] = []
        self._bound: list[int] = []
        self._extreme: list[int] = []
        self._refresh()

    def expected(self, rows: int) -> int:
        return self._expected[min(rows, self.rows_max)]

    def bound(self, rows: int) -> int:
        return self._bound[min(rows, self.rows_max)]

    def extreme(self, rows: int) -> int:
        return self._extreme[min(rows, self.rows_max)]

    def rows_within(self, time_us: int) -> int:
        """Most rows whose bound is at most ``time_us``; 0: not even one."""
        return bisect_right(self._bound, time_us) - 1

    def nearly_as_cheap(self, rows: int, factor: float = 1.05) -> int:
        """The fewest rows that cost at most ``factor`` times as much each as ``rows``
        do."""
        most_us = factor * self._expected[rows] / rows
        return next(n for n in range(1, rows + 1) if self._expected[n] <= most_us * n)

    def ladder_up(self, rows: int) -> int:
        return self.ladder[bisect_left(self.ladder, min(rows, self.rows_max))]

    def ladder_down(self, rows: int) -> int:
        """The largest step below ``rows``, or 0."""
        place = bisect_left(self.ladder, rows)
        return self.ladder[place - 1] if place else 0

    def may_judge(self, now_us: int) -> bool:
        """Whether a request may be given up by these times: not when that has gone on
        for a second without a run that took nearly as long. A device that was slow once
        would otherwise be taken for slow for ever, since nothing would run to show that
        it is not; and a model whose time follows its data, by its slowest runs."""
        if self._doubted_at_us is None:
            self._doubted_at_us = now_us
        return not self.is_doubted(now_us)

    def is_doubted(self, now_us: int) -> bool:
        since_us = self._doubted_at_us
        return since_us is not None and now_us - since_us >= BELIEVED_US

    @property
    def is_overrun(self) -> bool:
        """Whether runs of late took longer than their bound: what starts at the last
        moment by it comes late."""
        return self._drift > 1.0 or bool(self._slower)

    def suspect(self) -> None:
        """The device has become slower for others: two runs that tell the same of this
        version are enough, and all sizes follow them."""
        self._is_suspected = True

    def observe(self, rows: int, run_us: int) -> bool:
        """Take in a measured run. Whether it settles that the device became slower."""
        rows = min(max(rows, 1), self.rows_max)
        if 2 * run_us >= self._bound[rows]:
            self._doubted_at_us = None
        self._sort_out(rows, run_us)
        overran = run_us > self._bound[rows]
        self._overrun_rate += (overran - self._overrun_rate) / OVERRUN_MEMORY
        if self._overrun_rate > OVERRUN_RATE_MAX:
            self._drift = min(self._drift * DRIFT_UP, DRIFT_MAX)
            self._overrun_rate = OVERRUN_RATE_MAX / 2
        elif self._drift > 1.0:
            self._drift = max(self._drift * DRIFT_DOWN, 1.0)
        self._seen += 1
        is_slower = len(self._slower) >= SLOWER_RUNS
        has_changed = True
        if is_slower:
            self._start_over(self._slower)
        elif self._faster >= FASTER_RUNS:
            self._start_over(list(self._recent)[-SLOWER_RUNS:])
        elif self._is_suspected and len(self._slower) >= SLOWER_RUNS_SUSPECTED:
            self._stretch()
        else:
            has_changed = False
        if (
            has_changed
            or self._seen < REFRESH_ALWAYS_BELOW
            or self._seen % REFRESH_EVERY == 0
        ):
            self._refresh()
        return is_slower

    def _add(self, rows: int, run_us: int) -> None:
        self._recent.append((rows, run_us))
        self._steps[bisect_left(self.ladder, rows)].append((rows, run_us))

    def _sort_out(self, rows: int, run_us: int) -> None:
        """Take in what is like the runs before, and keep the others apart."""
        if len(self._steps[bisect_left(self.ladder, rows)]) < SAMPLES_TRUSTED:
            self._add(rows, run_us)
            return
        is_faster = run_us < FASTER_FACTOR * self._expected[rows]
        self._faster = self._faster + 1 if is_faster else 0
        if run_us > SLOWER_FACTOR * self._bound[rows]:
            self._slower.append((rows, run_us))
        else:
            self._is_suspected = False
            self._settle()
            self._add(rows, run_us)

    def _settle(self) -> None:
        for rows, run_us in self._slower:
            self._add(rows, run_us)
        self._slower = []

    def _start_over(self, last: list[tuple[int, int]]) -> None:
        """The device is another one than it was: believe the last runs alone."""
        for samples in (self._recent, *self._steps):
            samples.clear()
        self._slower = last
        self._begin_anew()

    def _stretch(self) -> None:
        """The device takes as much longer for all sizes as for those that it ran."""
        ratios = [run_us / self._expected[rows] for rows, run_us in self._slower]
        factor = sum(ratios) / len(ratios)
        for samples in (self._recent, *self._steps):
            stretched = [(rows, int(run_us * factor)) for rows, run_us in samples]
            samples.clear()
            samples.extend(stretched)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._settle()
        self._faster = 0
        self._is_suspected = False
        self._drift, self._overrun_rate = 1.0, 0.0

    def _refresh(self) -> None:
        alpha, beta = self._affine()
        base = [max(alpha + beta * rows, 1.0) for rows in range(self.rows_max + 1)]
        margin = self._margin(base)
        expected, bound, extreme = [0.0], [0.0], [0.0]
        for place, step in enumerate(self.ladder):
            first = self.ladder[place - 1] + 1 if place else 1
            untrusted = len(self._steps[place]) < SAMPLES_TRUSTED
            mean, high, highest = (
                (1.0, margin, margin) if untrusted else self._ratios(place, base)
            )
            least = self._announced_extreme(step) if untrusted else 0.0
            for rows in range(first, step + 1):
                expected.append(max(base[rows] * mean, expected[-1]))
                bound.append(max(base[rows] * high * self._drift, bound[-1]))
                tail = max(base[rows] * highest * self._drift, least)
                extreme.append(max(tail, extreme[-1]))
        self._expected = [0, *(max(int(us), 1) for us in expected[1:])]
        self._bound = [0, *(int(us) + 1 for us in bound[1:])]
        self._extreme = [0, *(int(us) + 1 for us in extreme[1:])]

    def _margin(self, base: list[float]) -> float:
        """For steps that hardly ran: by how well the fit tells all others."""
        if len(self._recent) < SAMPLES_FIT_TRUSTED:
            return MARGIN_MAX
        errors = sorted(abs(run_us / base[rows] - 1) for rows, run_us in self._recent)
        wide = errors[int(0.9 * len(errors))]
        return min(max(1 + 2 * wide, MARGIN_MIN), MARGIN_MAX)

    def _ratios(self, place: int, base: list[float]) -> tuple[float, float, float]:
        """Mean, quantile and 99th percentile of a step's runs against the fit."""
        samples = self._steps[place]
        ratios = sorted(run_us / base[rows] for rows, run_us in samples)
        count = len(ratios)
        high = ratios[min(int(self._quantile * count), count - 1)]
        median = ratios[count // 2]
        spread = sorted(abs(ratio - median) for ratio in ratios)[count // 2]
        # The median deviation times 1.48 is the standard deviation of a normal
        # distribution, and one outlier does not move it. Of two kinds of runs it says
        # more than any of them took.
        high = max(high, min(median + 2 * 1.48 * spread, 1.1 * ratios[-1]))
        highest = max(ratios[min(int(0.99 * count), count - 1)], high)
        kept = ratios[: count - count // 16]
        return sum(kept) / len(kept), high, highest

    def _announced_extreme(self, rows: int) -> float:
        """Twice the announced time of the next larger probed size."""
        larger = [us for probed, us in self._prior if probed >= rows]
        return 2.0 * larger[0] if larger else float(UNKNOWN_EXTREME_US)

    def _affine(self) -> tuple[float, float]:
        """Least squares over the recent runs, or over the probe's; both >= 0."""
        points = (
            list(self._recent)
            if len(self._recent) >= SAMPLES_TRUSTED
            else [*self._prior, *self._recent]
        )
        if not points:
            return float(UNKNOWN_US), 0.0
        count = len(points)
        mean_rows = sum(rows for rows, _ in points) / count
        mean_us = sum(us for _, us in points) / count
        spread = sum((rows - mean_rows) ** 2 for rows, _ in points)
        if spread < 1e-9:
            return self._through(mean_rows, mean_us)
        beta = sum((rows - mean_rows) * (us - mean_us) for rows, us in points) / spread
        beta = min(max(beta, 0.0), mean_us / mean_rows)
        return mean_us - beta * mean_rows, beta

    def _through(self, mean_rows: float, mean_us: float) -> tuple[float, float]:
        """One size only: keep the probe's shape, or call it flat."""
        if len(self._prior) < 2:
            return mean_us, 0.0
        (rows_low, us_low), (rows_high, us_high) = self._prior[0], self._prior[-1]
        slope = max((us_high - us_low) / (rows_high - rows_low), 0.0)
        probed_us = max(us_low + slope * (mean_rows - rows_low), 1.0)
        beta = min(slope * mean_us / probed_us, mean_us / mean_rows)
        return mean_us - beta * mean_rows, beta


class PacedTimes:
    """The run times of a worker that takes ``pace`` times as long as the mean."""

    def __init__(self, times: RunTimes, pace: float) -> None:
        self._times = times
        self._pace = pace
        self.rows_max = times.rows_max
        self.ladder_up = times.ladder_up
        self.ladder_down = times.ladder_down

    def expected(self, rows: int) -> int:
        return int(self._times.expected(rows) * self._pace)

    def bound(self, rows: int) -> int:
        return int(self._times.bound(rows) * self._pace)

    def extreme(self, rows: int) -> int:
        return int(self._times.extreme(rows) * self._pace)

    def rows_within(self, time_us: int) -> int:
        return self._times.rows_within(int(time_us / self._pace))
