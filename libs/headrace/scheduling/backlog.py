"""Everything that waits in one lane, kept so that the next question is cheap.

Which lines have work of a priority, which head misses its deadline next, how much a
tenant has waiting: updated as requests come and go, never searched for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from headrace.domain import (
    DUE_WITHIN_US,
    HopsMeasured,
    Price,
    Priority,
    QueueLoad,
    Reason,
    Refuse,
    Request,
    ServedVersion,
)
from headrace.scheduling.dearness import Asked, dear
from headrace.scheduling.estimate import BELIEVED_US, RunTimes
from headrace.scheduling.fairness import TenantClocks, Used
from headrace.scheduling.lengths import at_length
from headrace.scheduling.line import Line
from headrace.scheduling.prices import Offer, added, price
from headrace.scheduling.queue import NEVER_US, Band, Entry, QueueKey
from headrace.scheduling.settings import SchedulingSettings
from headrace.scheduling.shares import Shares

__all__ = ["Backlog"]

SECOND_US = 1_000_000
SPACING = 2
"""Two batches of a queue keep apart by so many times what one keeps the former busy: it
would spend more than half of its time on batches that could be one."""
LINES_KEPT_MAX = 4096
"""Lines remembered with their learned run times although nothing waits in them;
beyond, those idle the longest are forgotten and learn anew."""


class Backlog:
    """All lines of a lane."""

    def __init__(self, settings: SchedulingSettings, tenants: TenantClocks) -> None:
        self._settings = settings
        self._tenants = tenants
        self.control_us = settings.control_hop_us
        self.response_us = settings.response_hop_us
        self.spacing_us = 0
        self.busy: tuple[dict[QueueKey, Line], ...] = tuple({} for _ in Priority)
        """Lines with work of each priority."""
        self._versions: dict[tuple[str, str], ServedVersion] = {}
        self._times: dict[QueueKey, RunTimes] = {}
        self._lines: dict[tuple[str, str, str], Line] = {}
        self._waiting: dict[str, tuple[Line, Entry]] = {}
        self._misses: list[tuple[int, int, int, QueueKey]] = []
        self._seq = 0
        self.used = Used[tuple[str, str]]()
        """Device time that versions had lately."""

    def __len__(self) -> int:
        return len(self._waiting)

    def take_hops(self, hops: HopsMeasured) -> None:
        self.control_us = hops.control_us
        self.response_us = hops.response_us
        longest_us = self._settings.spacing_us_max
        self.spacing_us = min(SPACING * hops.path_us, longest_us)

    def lines(self) -> Iterator[Line]:
        return iter(self._lines.values())

    def shorter(self, line: Line, priority: int) -> list[Line]:
        """Lines with work of ``priority`` whose requests could be padded to this one's
        length, the longest first."""
        if not line.edge or line.alone:
            return []
        found = [
            other
            for other in self.busy[priority].values()
            if other.kin == line.kin and other.edge < line.edge and not other.alone
        ]
        return sorted(found, key=lambda other: -other.edge)

    def suspect_others(self, slower: RunTimes) -> None:
        for times in self._times.values():
            if times is not slower:
                times.suspect()

    def times_of(self, shape: QueueKey) -> RunTimes | None:
        return self._times.get(shape)

    def add(self, request: Request, now_us: int) -> Refuse | None:
        """Queue a request; repeating it changes nothing."""
        if request.key in self._waiting:
            return None
        name = request.shape
        if request.group:
            name = f"{name} group {request.group}"
        line = self._lines.get((request.model, request.version, name))
        served = self._served(request) if line is None else line.served
        if served is None:
            text = "no worker has the version any more"
            return Refuse(request, Reason.MODEL_UNAVAILABLE, text)
        if request.rows > served.max_batch:
            text = f"{request.rows} rows, and the model runs at most {served.max_batch}"
            return Refuse(request, Reason.INVALID, text)
        if line is None:
            line = self._new_line(request, name, served)
        if request.deadline_us is not None:
            count = line.counts.get(request.tenant, 0)
            if count >= self._settings.queue_requests_max:
                text = f"{count} requests of the tenant wait already"
                return Refuse(request, Reason.QUEUE_FULL, text, line.drain_us())
            line.counts[request.tenant] = count + 1
        self._seq += 1
        entry = line.queue.push(request, self._seq)
        self._waiting[request.key] = (line, entry)
        self._tenants.enqueued(request.tenant)
        line.demand.arrived(request, now_us)
        band = line.queue.bands[request.priority]
        if band.head is entry:
            if len(band) == 1:
                self.busy[request.priority][line.queue.key] = line
            self._watch(line, request.priority)
        return None

    def withdraw(self, key: str) -> None:
        found = self._waiting.get(key)
        if found is not None:
            line, entry = found
            self.remove(line, [entry])

    def remove(self, line: Line, entries: list[Entry]) -> None:
        """Take queued entries of one line out."""
        gone: dict[str, int] = {}
        for entry in entries:
            request = entry.request
            del self._waiting[request.key]
            gone[request.tenant] = gone.get(request.tenant, 0) + 1
            if request.deadline_us is not None:
                line.counts[request.tenant] -= 1
        for tenant, count in gone.items():
            self._tenants.dequeued(tenant, count)
            if not line.counts.get(tenant, 1):
                del line.counts[tenant]
        for priority in line.queue.remove(entries):
            if line.queue.bands[priority]:
                self._watch(line, priority)
            else:
                del self.busy[priority][line.queue.key]
                line.waits_since_us[priority] = None
        if line.alone and not len(line.queue):
            del self._lines[line.queue.key]

    def change_version(self, served: ServedVersion) -> list[Refuse]:
        """Take in a version's slots and limits; when it is gone, end what waits."""
        name = (served.model, served.version)
        gone = served.is_gone
        before = self._versions.pop(name, None)
        if not gone:
            self._versions[name] = served
        resized = before is not None and before.max_batch != served.max_batch
        ended: list[Refuse] = []
        for key, line in list(self._lines.items()):
            if line.version != name:
                continue
            line.serve(served)
            if gone:
                ended += self._end(line)
                self._lines.pop(key, None)
                self._times.pop(line.shape, None)
            elif resized:
                line.times = self._new_times(line.shape, served, line.edge)
        return ended

    def last_start_us(self, line: Line, entry: Entry) -> int:
        """Latest start of a run of ``entry`` alone that makes its deadline."""
        run_us = line.times.bound(entry.request.rows)
        return entry.deadline_us - run_us - self.response_us

    def shortfall(self, line: Line, entry: Entry, start_us: int, now_us: int) -> str:
        """How :meth:`last_start_us` came to lie before ``start_us``, in milliseconds
        that add up."""
        needed = [
            -(-us // 100) / 10
            for us in (
                max(start_us - now_us, 0),
                line.times.bound(entry.request.rows),
                self.response_us,
            )
        ]
        start, run, answer = needed
        left = (entry.deadline_us - now_us) // 100 / 10
        return (
            f"{left:.1f} ms of its time limit were left, and it needs "
            f"{sum(needed):.1f} ms: {start:.1f} until it can start, {run:.1f} for the "
            f"run and {answer:.1f} for the answer"
        )

    def missing(self, now_us: int) -> Iterator[tuple[Line, int]]:
        """Lines and priorities whose head may have become hopeless by now."""
        while self._misses and self._misses[0][0] < now_us:
            _, seq, priority, key = heappop(self._misses)
            line = self._lines.get(key)
            if line is None or not (band := line.queue.bands[priority]):
                continue
            yield line, priority
            # Runs turned out to be shorter than when its last moment was noted.
            if (
                band
                and band.head.seq == seq
                and self._miss_us(line, band.head) >= now_us
            ):
                self._watch(line, priority)

    def next_miss_us(self) -> int | None:
        """When a head becomes hopeless; heads that are gone are forgotten."""
        misses = self._misses
        while misses:
            at_us, seq, priority, key = misses[0]
            line = self._lines.get(key)
            if line is not None:
                band = line.queue.bands[priority]
                if band and band.head.seq == seq:
                    return at_us + 1
            heappop(misses)
        return None

    def load(self, now_us: int) -> tuple[list[QueueLoad], list[Price]]:
        """What waits per model version and priority, and what a row costs, of the
        versions that were asked for within the online memory."""
        queues: dict[tuple[str, str, Priority], QueueLoad] = {}
        offers: dict[tuple[str, str], list[Offer]] = {}
        asked: list[Asked] = []
        hops_us = self.control_us + self.response_us
        since_us = now_us - self._settings.online_memory_us
        for line in self._lines.values():
            if line.demand.arrived_at_us < since_us and not len(line.queue):
                continue
            key = line.queue.key
            largest = line.demand.largest_rows(line.times, hops_us, now_us)
            largest = min(largest, line.rows_limit)
            row_us = line.times.expected(largest) / largest
            offer = Offer(
                weight=line.demand.rows_per_us(now_us) + len(line.queue) / SECOND_US,
                row_us=row_us,
                batch_us=line.times.bound(line.times.nearly_as_cheap(largest)),
                one_us=self._one_us(line, now_us),
                room=self._room(line),
            )
            offers.setdefault(line.version, []).append(offer)
            if line.demand.online_at_us >= since_us:
                asked.append(Asked(line.version, row_us, line.slots))
            for priority in Priority:
                band = line.queue.bands[priority]
                if band:
                    name = (key.model, key.version, priority)
                    more = self._queue_load(band, name, row_us, now_us)
                    queues[name] = added(queues.get(name), more)
        are_dear = dear(asked, self.used)
        prices = [
            price(*name, shapes, is_dear=name in are_dear)
            for name, shapes in offers.items()
        ]
        return list(queues.values()), prices

    def _room(self, line: Line) -> dict[str, int]:
        most = self._settings.queue_requests_max
        if 2 * len(line.queue) < most:
            return {}
        return {
            tenant: max(most - count, 0)
            for tenant, count in line.counts.items()
            if 2 * count >= most
        }

    @staticmethod
    def _one_us(line: Line, now_us: int) -> int:
        """0: unknown, since nothing ran lately or what ran was far shorter; then nobody
        is kept out by it."""
        times = line.times
        is_known = now_us - times.observed_at_us < BELIEVED_US
        return times.bound(1) if is_known and not times.is_doubted(now_us) else 0

    @staticmethod
    def _queue_load(
        band: Band, name: tuple[str, str, Priority], row_us: float, now_us: int
    ) -> QueueLoad:
        model, version, priority = name
        due_us = [0.0] * (len(DUE_WITHIN_US) + 1)
        for deadline_us, rows in band.due.items():
            due_us[bisect_left(DUE_WITHIN_US, deadline_us - now_us)] += rows * row_us
        while due_us and not due_us[-1]:
            due_us.pop()
        return QueueLoad(
            model=model,
            version=version,
            priority=priority,
            requests=len(band),
            rows=band.rows,
            oldest_us=max(now_us - band.head.request.arrived_us, 0),
            backlog_us=int(band.rows * row_us),
            due_us=list(map(int, due_us)),
        )

    def bands_in_order(self, shares: Shares, now_us: int) -> list[tuple[int, bool]]:
        """Priorities with work: those owed their share first, then by urgency."""
        owed: list[tuple[int, bool]] = []
        plain: list[tuple[int, bool]] = []
        for priority in Priority:
            busy = self.busy[priority]
            if not busy:
                continue
            line = next(iter(busy.values()))
            rows = min(len(line.queue.bands[priority]), line.rows_limit)
            if shares.is_owed(priority, line.times.expected(rows)):
                owed.append((priority, True))
            plain.append((priority, False))
        if self._bulk_aged(now_us):
            plain = [order for order in plain if order[0] != Priority.BULK]
            place = sum(order[0] < Priority.STANDARD for order in plain)
            plain.insert(place, (Priority.BULK, False))
        return owed + plain

    def _bulk_aged(self, now_us: int) -> bool:
        """Whether the oldest bulk request waits so long that it counts as standard."""
        return any(
            now_us - line.head(Priority.BULK).request.arrived_us
            > self._settings.bulk_ageing_us
            for line in self.busy[Priority.BULK].values()
        )

    def by_urgency(
        self, priority: int, near: tuple[str, str] | None, near_us: int
    ) -> list[Line]:
        """Lines with work of ``priority``, the one that must leave first in front;
        those of the version ``near`` as if they had to leave ``near_us`` sooner."""
        lines = list(self.busy[priority].values())
        if len(lines) > 1:
            key: Callable[..., tuple[float, ...]]
            key = self._turn if priority == Priority.BULK else self._urgency
            lines.sort(key=lambda line: key(line, priority, near, near_us))
        return lines

    def _turn(
        self, line: Line, priority: int, near: tuple[str, str] | None, near_us: int
    ) -> tuple[float, ...]:
        """Bulk without a deadline need not leave at any time: whose tenant had least,
        then who waits longest, however long it runs, behind what has to leave."""
        head = line.head(priority)
        if priority == Priority.BULK and head.deadline_us == NEVER_US:
            return True, self._tenants.clock(head.request.tenant), head.seq
        return False, *self._urgency(line, priority, near, near_us)

    def _urgency(
        self, line: Line, priority: int, near: tuple[str, str] | None, near_us: int
    ) -> tuple[bool, int, float, int]:
        band = line.queue.bands[priority]
        head = band.head
        tenants = self._tenants
        pressure = line.demand.pressure(priority)
        # Whose own losses he could end by asking for less gives way to the others.
        aside = (
            pressure > 0
            and tenants.contended
            and all(tenants.is_heavy(tenant) for tenant in band.tenants())
        )
        # Where requests are lost, long queues come first: their rows are cheaper.
        run_us = line.times.bound(len(band))
        leave_by_us = head.deadline_us - int((1 + pressure) * run_us)
        if line.version == near and head.deadline_us != NEVER_US:
            leave_by_us -= near_us
        return aside, leave_by_us, tenants.clock(head.request.tenant), head.seq

    def _served(self, request: Request) -> ServedVersion | None:
        return self._versions.get((request.model, request.version))

    def _new_line(self, request: Request, name: str, served: ServedVersion) -> Line:
        self._forget_idle()
        shape = key = QueueKey(request.model, request.version, request.shape)
        if name != request.shape:
            key = shape._replace(shape=name)
        edge = served.padding.edge(request.length) if served.padding else 0
        times = self._times.get(shape)
        if times is None:
            times = self._new_times(shape, served, edge)
        line = self._lines[key] = Line(key, shape, served, times, edge)
        return line

    def _forget_idle(self) -> None:
        if len(self._lines) < LINES_KEPT_MAX:
            return
        idle = [line for line in self._lines.values() if not len(line.queue)]
        idle.sort(key=lambda line: line.demand.arrived_at_us)
        for line in idle[: max(len(idle) // 2, 1)]:
            del self._lines[line.queue.key]
            self._times.pop(line.shape, None)

    def _new_times(self, shape: QueueKey, served: ServedVersion, edge: int) -> RunTimes:
        prior_us = served.run_us
        if served.run_length:
            prior_us = at_length(prior_us, edge / served.run_length)
        times = self._times[shape] = RunTimes(
            served.max_batch, prior_us, quantile=self._settings.quantile
        )
        # What the slots measured before this process began.
        for rows, run_us in served.recent_runs.get(shape.shape, ()):
            times.observe(rows, run_us)
        return times

    def _end(self, line: Line) -> list[Refuse]:
        ended: list[Refuse] = []
        for band in line.queue.bands:
            if band:
                entries = list(band)
                self.remove(line, entries)
                text = "the version was removed"
                ended += [
                    Refuse(entry.request, Reason.MODEL_UNAVAILABLE, text)
                    for entry in entries
                ]
        return ended

    def watch_expiry(self, line: Line, priority: int) -> None:
        """The head is kept although it may not make it: look again at its end."""
        head = line.head(priority)
        miss = (head.deadline_us, head.seq, priority, line.queue.key)
        heappush(self._misses, miss)

    def _watch(self, line: Line, priority: int) -> None:
        """Note when the head of a band can no longer make it even on an idle slot."""
        head = line.head(priority)
        if head.deadline_us != NEVER_US:
            at_us = self._miss_us(line, head)
            heappush(self._misses, (at_us, head.seq, priority, line.queue.key))

    def _miss_us(self, line: Line, entry: Entry) -> int:
        return self.last_start_us(line, entry) - self.control_us
