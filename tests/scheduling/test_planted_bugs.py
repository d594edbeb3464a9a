"""Each of these bugs, planted into a copy of the core, is noticed by its tests.

Whoever changes a line that is named here changes the bug with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CORE = Path("libs/headrace/scheduling")


class Bug(NamedTuple):
    name: str
    module: str
    right: str
    wrong: str


BUGS = [
    Bug(
        "a head that hinders nobody is given up",
        "selection.py",
        "if fitting < terms.gate * min(rows, terms.target_rows):",
        "if fitting < rows:",
    ),
    Bug(
        "no head is ever given up",
        "selection.py",
        "if fitting < terms.gate * min(rows, terms.target_rows):",
        "if fitting < 0:",
    ),
    Bug(
        "batches pass the rows that fit the first deadline",
        "selection.py",
        "    rows = min(rows, fitting)\n",
        "",
    ),
    Bug(
        "bytes do not close a batch",
        "selection.py",
        "if request.rows > room or (taken and request.size_bytes > space):",
        "if request.rows > room:",
    ),
    Bug(
        "shares between tenants are ignored",
        "selection.py",
        "    while turns:\n        clock, tenant, place = heappop(turns)",
        "    return list(entries)\n    while turns:\n"
        "        clock, tenant, place = heappop(turns)",
    ),
    Bug(
        "the head of a tenant below his share is given up",
        "selection.py",
        "            if fitting >= terms.gate_light * size:\n",
        "            if False:\n",
    ),
    Bug(
        "late arrivals with early deadlines wait at the end",
        "queue.py",
        "        elif entry < own[-1]:\n            insort(own, entry)\n",
        "",
    ),
    Bug(
        "the head is not found anew",
        "queue.py",
        "        self._count -= len(entries)\n"
        "        self.rows -= sum(entry.request.rows for entry in entries)\n"
        "        self._head = None",
        "        self._count -= len(entries)\n"
        "        self.rows -= sum(entry.request.rows for entry in entries)",
    ),
    Bug(
        "a repeated arrival counts twice",
        "backlog.py",
        "        if request.key in self._waiting:\n            return None\n",
        "",
    ),
    Bug(
        "nobody looks at deadlines while no worker is free",
        "backlog.py",
        "heappush(self._misses, (at_us, head.seq, priority, line.queue.key))",
        "pass",
    ),
    Bug(
        "what waits for a version that is gone is forgotten",
        "backlog.py",
        "                ended += self._end(line)\n",
        "",
    ),
    Bug(
        "the queue's limit is off by one",
        "backlog.py",
        "count >= self._settings.queue_requests_max",
        "count > self._settings.queue_requests_max",
    ),
    Bug(
        "a group does not keep to itself",
        "backlog.py",
        "        if request.group:\n",
        "        if False:\n",
    ),
    Bug(
        "a batch goes to any worker",
        "former.py",
        "            if slot.number in has:\n",
        "            if True:\n",
    ),
    Bug(
        "lower priorities ride along whatever it costs",
        "former.py",
        "                    and late_us + times.bound(more) <= soonest_us\n",
        "",
    ),
    Bug(
        "a withdrawn request is sent",
        "former.py",
        "                self._backlog.withdraw(key)\n",
        "",
    ),
    Bug(
        "less urgent priorities go first",
        "backlog.py",
        "        return owed + plain\n",
        "        return owed + plain[::-1]\n",
    ),
    Bug(
        "no share is ever owed",
        "shares.py",
        "return self._shares[priority] > 0 and self._owed_us[priority] >= run_us",
        "return False",
    ),
    Bug(
        "the credit ahead is used at once",
        "slots.py",
        "        opens_at_us = slot.running_until_us() - ahead_us\n",
        "        opens_at_us = 0\n",
    ),
    Bug(
        "a slot without a credit may be sent to",
        "slots.py",
        "        if slot.credits_free <= 0:\n            return\n",
        "",
    ),
    Bug(
        "a busy worker comes before an idle one",
        "slots.py",
        "for _, number in self._idle:",
        "for _, number in self._ahead + self._idle:",
    ),
    Bug(
        "times may fall with more rows",
        "estimate.py",
        "expected.append(max(base[rows] * mean, expected[-1]))",
        "expected.append(base[rows] * mean)",
    ),
    Bug(
        "an outlier is believed",
        "estimate.py",
        "        high = ratios[min(int(self._quantile * count), count - 1)]\n",
        "        high = ratios[-1]\n",
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

    found = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
            *("tests/scheduling", "--ignore", __file__, "--timeout", "60"),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "libs")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 1, found.stdout[-2000:]
    assert " failed" in found.stdout
