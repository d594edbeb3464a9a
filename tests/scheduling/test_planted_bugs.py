"""Each of these bugs, planted into a copy of the core, is noticed by its tests.

Whoever changes a line that is named here changes the bug with it.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
from pathlib import Path

import pytest

from tests.scheduling.bugs_of_shares import BUGS_OF_SHARES
from tests.scheduling.planting import Bug, run_tests

ROOT = Path(__file__).parents[2]
CORE = Path("libs/headrace/scheduling")
# Forty interpreters that import pytest and Hypothesis would take most of the time.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "hypothesis.internal.conjecture.engine"])


BUGS = [
    *BUGS_OF_SHARES,
    Bug(
        "who is more urgent waits for what others lose",
        "test_waiting.py",
        "demand.py",
        "        losses = self._losses[priority]\n",
        "        losses = max(self._losses, key=lambda each: each.pressure)\n",
    ),
    Bug(
        "nobody waits where others on their slots lose requests",
        "test_waiting.py",
        "conditions.py",
        "pressure=self._online.pressure_around(line, priority, pressure, now_us),",
        "pressure=pressure,",
    ),
    Bug(
        "who overruns its times waits for what others lose",
        "test_waiting.py",
        "online.py",
        "        if line.times.is_overrun:\n",
        "        if False:\n",
    ),
    Bug(
        "losses are forgotten as fast as they are noticed",
        "test_waiting.py",
        "demand.py",
        "else weight / FALL\n",
        "else weight\n",
    ),
    Bug(
        "a batch makes all other priorities wait anew",
        "test_waiting.py",
        "former.py",
        "        line.waits_since_us[choice.priority] = None\n",
        "        line.waits_since_us = [None] * len(Priority)\n",
    ),
    Bug(
        "a batch passes a more urgent one that waits for company",
        "test_waiting.py",
        "former.py",
        "                    return self._in_turn(choice)\n",
        "                    return choice\n",
    ),
    Bug(
        "heads that ride along leave no room for those behind them",
        "test_gate.py",
        "companions.py",
        "            if more.rows < gate * behind.rows:\n",
        "            if False:\n",
    ),
    Bug(
        "a head that could ride along never does",
        "test_gate.py",
        "companions.py",
        "            if more.rows < gate * behind.rows:\n",
        "            if True:\n",
    ),
    Bug(
        "batches keep apart beyond their last moment",
        "test_spacing.py",
        "waiting.py",
        "        apart_us = min(line.sent_at_us + spacing_us, invalid_us)\n",
        "        apart_us = line.sent_at_us + spacing_us\n",
    ),
    Bug(
        "versions take each other's slots",
        "test_affinity.py",
        "affinity.py",
        "        if first.sent_last in {line.version, None}:\n",
        "        if True:\n",
    ),
    Bug(
        "a version near by passes more urgent ones without end",
        "test_affinity.py",
        "backlog.py",
        "            leave_by_us -= near_us\n",
        "            leave_by_us = 0\n",
    ),
    Bug(
        "tokens do not close a batch",
        "test_lengths.py",
        "lengths.py",
        "    return min(max(tokens_max // edge, 1), served.max_batch)\n",
        "    return served.max_batch\n",
    ),
    Bug(
        "a head that hinders nobody is given up",
        "test_gate.py",
        "selection.py",
        "if fitting < terms.gate * min(rows, terms.target_rows):",
        "if fitting < rows:",
    ),
    Bug(
        "no head is ever given up",
        "test_gate.py",
        "selection.py",
        "if fitting < terms.gate * min(rows, terms.target_rows):",
        "if fitting < 0:",
    ),
    Bug(
        "batches pass the rows that fit the first deadline",
        "test_gate.py",
        "selection.py",
        "    rows = min(rows, fitting)\n",
        "",
    ),
    Bug(
        "bytes do not close a batch",
        "test_batching.py",
        "selection.py",
        "if request.rows > room or (taken and request.size_bytes > space):",
        "if request.rows > room:",
    ),
    Bug(
        "shares between tenants are ignored",
        "test_batching.py",
        "selection.py",
        "    while turns:\n        clock, tenant, place = heappop(turns)",
        "    return list(entries)\n    while turns:\n"
        "        clock, tenant, place = heappop(turns)",
    ),
    Bug(
        "the head of a tenant below his share is given up",
        "test_gate.py",
        "selection.py",
        "            if fitting >= terms.gate_light * size:\n",
        "            if False:\n",
    ),
    Bug(
        "late arrivals with early deadlines wait at the end",
        "test_batching.py",
        "queue.py",
        "        elif entry < own[-1]:\n            insort(own, entry)\n",
        "",
    ),
    Bug(
        "the head is not found anew",
        "test_history.py",
        "queue.py",
        "        self._count -= len(entries)\n"
        "        self.rows -= sum(entry.request.rows for entry in entries)\n"
        "        self._head = None",
        "        self._count -= len(entries)\n"
        "        self.rows -= sum(entry.request.rows for entry in entries)",
    ),
    Bug(
        "a repeated arrival counts twice",
        "test_batching.py",
        "backlog.py",
        "        if request.key in self._waiting:\n            return None\n",
        "",
    ),
    Bug(
        "nobody looks at deadlines while no worker is free",
        "test_batching.py",
        "backlog.py",
        "heappush(self._misses, (at_us, head.seq, priority, line.queue.key))",
        "pass",
    ),
    Bug(
        "what waits for a version that is gone is forgotten",
        "test_batching.py",
        "backlog.py",
        "                ended += self._end(line)\n",
        "",
    ),
    Bug(
        "the queue's limit is off by one",
        "test_batching.py",
        "backlog.py",
        "count >= self._settings.queue_requests_max",
        "count > self._settings.queue_requests_max",
    ),
    Bug(
        "a group does not keep to itself",
        "test_batching.py",
        "backlog.py",
        "        if request.group:\n",
        "        if False:\n",
    ),
    Bug(
        "a batch goes to any worker",
        "test_batching.py",
        "former.py",
        "            if slot.number in has:\n",
        "            if True:\n",
    ),
    Bug(
        "lower priorities ride along whatever it costs",
        "test_batching.py",
        "companions.py",
        "    if chosen.deadline_us != NEVER_US:\n",
        "    if False:\n",
    ),
    Bug(
        "who rides along comes too late",
        "test_gate.py",
        "companions.py",
        "        if entry.deadline_us < deadline_us:\n",
        "        if False:\n",
    ),
    Bug(
        "shorter requests ride along where that costs more than their own batch",
        "test_lengths.py",
        "neighbours.py",
        "            < line.times.expected(more)\n",
        "            < 1e12\n",
    ),
    Bug(
        "a group that is to run alone takes shorter requests along",
        "test_lengths.py",
        "backlog.py",
        "        if not line.edge or line.alone:\n",
        "        if not line.edge:\n",
    ),
    Bug(
        "a withdrawn request is sent",
        "test_batching.py",
        "former.py",
        "                self._backlog.withdraw(key)\n",
        "",
    ),
    Bug(
        "less urgent priorities go first",
        "test_batching.py",
        "backlog.py",
        "        return owed + plain\n",
        "        return owed + plain[::-1]\n",
    ),
    Bug(
        "the credit ahead is used at once",
        "test_batching.py",
        "slots.py",
        "        opens_at_us = slot.running_until_us() - ahead_us\n",
        "        opens_at_us = 0\n",
    ),
    Bug(
        "a slot without a credit may be sent to",
        "test_behind.py",
        "slots.py",
        "        if slot.credits_free <= 0:\n            return\n",
        "",
    ),
    Bug(
        "a busy worker comes before an idle one",
        "test_batching.py",
        "slots.py",
        "for openness in _USUAL:",
        "for openness in reversed(_USUAL):",
    ),
    Bug(
        "times may fall with more rows",
        "test_estimate.py",
        "estimate.py",
        "expected.append(max(base[rows] * mean, expected[-1]))",
        "expected.append(base[rows] * mean)",
    ),
    Bug(
        "an outlier is believed",
        "test_estimate.py",
        "estimate.py",
        "        high = ratios[min(int(self._quantile * count), count - 1)]\n",
        "        high = ratios[-1]\n",
    ),
    Bug(
        "nobody is woken for a head that becomes hopeless",
        "test_history.py",
        "former.py",
        "        soonest_us = self._backlog.next_miss_us()\n",
        "        soonest_us: int | None = None\n",
    ),
    Bug(
        "a head that gained time is not looked at again",
        "test_history.py",
        "backlog.py",
        "                self._watch(line, priority)\n\n    def next_miss_us",
        "                pass\n\n    def next_miss_us",
    ),
    Bug(
        "those who can wait go before those who cannot",
        "test_gate.py",
        "selection.py",
        "        *_by_share(pool[:split], tenants, cost),\n"
        "        *_by_share(pool[split:], tenants, cost),\n",
        "        *_by_share(pool[split:], tenants, cost),\n"
        "        *_by_share(pool[:split], tenants, cost),\n",
    ),
    Bug(
        "a queue without a worker holds all others up",
        "test_history.py",
        "former.py",
        "                if slot is None:\n                    continue\n",
        "                if slot is None:\n                    return None\n",
    ),
    Bug(
        "a batch waits until its last moment",
        "test_history.py",
        "waiting.py",
        "    return min(invalid_us, max(wait_until_us, apart_us)), ",
        "    return invalid_us, ",
    ),
    Bug(
        "a bulk run may take all the time that is spare",
        "test_history.py",
        "online.py",
        "min(self._settings.bulk_chunk * spare_us, slack_us)",
        "slack_us",
    ),
    Bug(
        "an end that is told twice is learned from twice",
        "test_invariants.py",
        "former.py",
        "self._running.pop(event.batch, (None, 0))",
        "self._running.get(event.batch, (None, 0))",
    ),
    Bug(
        "every refusal says that the time was over",
        "test_replay.py",
        "misses.py",
        "    if entry.deadline_us <= now_us + backlog.response_us:\n",
        "    if entry.deadline_us:\n",
    ),
    Bug(
        "a dear size is not made smaller",
        "test_steps.py",
        "selection.py",
        "        return down\n    return 0\n",
        "        return 0\n    return 0\n",
    ),
    Bug(
        "who cannot wait is left behind for a cheaper size",
        "test_steps.py",
        "selection.py",
        "            return entry.deadline_us < _urgent_before(rows, times, terms)\n"
        "    return False",
        "            return False\n    return False",
    ),
    Bug(
        "a group is cut to a cheaper size",
        "test_steps.py",
        "conditions.py",
        "            is_group=line.alone,\n",
        "",
    ),
    Bug(
        "who avoids a worker rides along to it",
        "test_lengths.py",
        "neighbours.py",
        "            and all(entry.request.avoid != slot for entry in entries)\n",
        "",
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "libs",
        tmp_path / "libs",
        ignore=shutil.ignore_patterns("__pycache__", "_generated"),
    )
    module = tmp_path / CORE / bug.module
    text = module.read_text()
    assert text.count(bug.right) == 1, "the list is behind the code"
    module.write_text(text.replace(bug.right, bug.wrong))

    told = tmp_path / "told"
    run = FORKS.Process(target=run_tests, args=(bug.noticed_by, tmp_path, told))
    run.start()
    run.join()

    found = told.read_text()
    assert run.exitcode == pytest.ExitCode.TESTS_FAILED, found[-2000:]
    assert " failed" in found


def test_the_list_of_what_holds_names_tests_that_say_so() -> None:
    """Each number of the core's README stands in the tests that it names."""
    rows = [
        line.split("|")
        for line in (ROOT / CORE / "README.md").read_text().splitlines()
        if line.startswith("| I")
    ]
    for _, number, _, places, *_ in rows:
        named = re.findall(r"`(tests/[^`]+)`", places)
        own = [path for path in named if path.startswith(("tests/sch", "tests/sim"))]
        for path in named:
            assert (ROOT / path).exists(), path
        for path in own:
            assert f"{number.strip()}" in re.findall(
                r"\bI\d+\b", (ROOT / path).read_text()
            ), f"{path} does not name{number}"
    assert [row[1].strip() for row in rows] == [f"I{n}" for n in range(1, 28)]
