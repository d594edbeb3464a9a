"""Bugs of who gets how much of the device time, and of what is told of it."""

from __future__ import annotations

from tests.scheduling.planting import Bug

BUGS_OF_SHARES = [
    Bug(
        "who rides along rides for nothing",
        "test_shares.py",
        "charging.py",
        "            part *= COMPANION_CHARGE\n",
        "            part = 0.0\n",
    ),
    Bug(
        "bulk never ages",
        "test_bulk.py",
        "backlog.py",
        "        if self._bulk_aged(now_us):\n",
        "        if False:\n",
    ),
    Bug(
        "time that paid for one long run pays for the next",
        "test_bulk.py",
        "long_runs.py",
        "        return owed_us <= 0\n",
        "        return True\n",
    ),
    Bug(
        "shorter runs spend what a longer one waits for",
        "test_bulk.py",
        "long_runs.py",
        "        return owed_us <= 0\n",
        "        return self._share * -owed_us >= run_us\n",
    ),
    Bug(
        "a long run goes alone",
        "test_bulk.py",
        "online.py",
        "        return max(min(within, cheap), rows)\n",
        "        return rows\n",
    ),
    Bug(
        "bulk waits for online requests that go to other workers",
        "test_bulk.py",
        "online.py",
        "            slots = (line.slots for line in self._busy_lines)\n",
        "            slots = (line.slots for line in self._backlog.lines())\n",
    ),
    Bug(
        "who runs longest goes first where nobody has a deadline",
        "test_bulk.py",
        "backlog.py",
        "        if priority == Priority.BULK and head.deadline_us == NEVER_US:\n",
        "        if False:\n",
    ),
    Bug(
        "no share is ever owed",
        "test_shares.py",
        "shares.py",
        "return self._shares[priority] > 0 and self._owed_us[priority] >= run_us",
        "return False",
    ),
    Bug(
        "weights of tenants are ignored",
        "test_shares.py",
        "fairness.py",
        "        weighted = device_us / self._weights.get(tenant, 1.0)\n",
        "        weighted = device_us\n",
    ),
    Bug(
        "idling earns a tenant device time",
        "test_shares.py",
        "fairness.py",
        "            self._clock[tenant] = max(self._clock.get(tenant, 0.0), floor)\n",
        "            self._clock.setdefault(tenant, floor)\n",
    ),
    Bug(
        "a tenant may be behind for ever",
        "test_shares.py",
        "fairness.py",
        "        return max(self._clock.get(tenant, 0.0), "
        "self._furthest - self._burst_us)\n",
        "        return self._clock.get(tenant, 0.0)\n",
    ),
    Bug(
        "who rides along still counts as starved",
        "test_bulk.py",
        "charging.py",
        "        if any(line is not choice.line for line in lines.values()):\n",
        "        if True:\n",
    ),
    Bug(
        "what is owed is forgotten with the first batch of the priority",
        "test_shares.py",
        "shares.py",
        "max(owed_us - taken_us, -run_us)",
        "0.0",
    ),
    Bug(
        "a backlog that is gone keeps its claim",
        "test_shares.py",
        "shares.py",
        "            owed_us = 0.0\n",
        "            owed_us = self._owed_us[priority]\n",
    ),
    Bug(
        "who was alone owes it to who comes",
        "test_shares.py",
        "fairness.py",
        "            self._clock.clear()\n            self._furthest = 0.0\n",
        "            pass\n",
    ),
    Bug(
        "who finds a queue full is told to come back at once",
        "test_load.py",
        "line.py",
        "        return int(len(self.queue) * row_us / max(len(self.slots), 1))\n",
        "        return 0\n",
    ),
    Bug(
        "nobody is told who takes more than his part",
        "test_load.py",
        "loads.py",
        "        heavy=tenants.heavy(),\n",
        "        heavy=[],\n",
    ),
    Bug(
        "a run begins when the end of the one before is heard of",
        "test_load.py",
        "former.py",
        "            slot.started_us = now_us - self._backlog.control_us\n",
        "            slot.started_us = now_us\n",
    ),
]
