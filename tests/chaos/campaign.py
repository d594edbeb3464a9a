"""One run: clients ask while faults strike, then both histories are judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.audit import Kind
from tests.chaos.bulk import Bulk
from tests.chaos.clients import Clients
from tests.chaos.faults import Fault
from tests.chaos.history import GRACE_US, breaches, tally
from tests.chaos.stand import LANES, Stand

__all__ = ["Verdict", "campaign"]


@dataclass(frozen=True)
class Verdict:
    """What a campaign found."""

    asked: int
    ends: dict[str, int]
    bulk: dict[str, int]
    breaches: list[str]
    audit: dict[str, Any]

    @property
    def is_clean(self) -> bool:
        """An ingress ends what waits by its own timer, so that what stands in the log
        later than a deadline is no breach while processes die."""
        hard = sum(self.audit["totals"][kind] for kind in Kind if kind is not Kind.LATE)
        return not self.breaches and not hard

    def __str__(self) -> str:
        counts = {name: value for name, value in self.audit["counts"].items() if value}
        lines = [
            f"{self.asked} requests: {self.ends}",
            *([f"bulk: {self.bulk}"] if self.bulk else ()),
            f"auditor: {counts}, totals {self.audit['totals']}",
            *self.audit["warnings"],
            *self.breaches[:50],
            *(
                str(each)
                for each in self.audit["findings"]
                if each["kind"] != Kind.LATE
            ),
        ]
        return "\n".join(lines)


def campaign(
    stand: Stand,
    seed: int,
    faults: Iterable[Fault],
    *,
    requests: int,
    items: int = 0,
    grace_us: int = GRACE_US,
    say: Callable[[str], None] = print,
) -> Verdict:
    """Ask ``requests`` at least, with ``items`` of bulk work beside them, and go on
    until the last of ``faults`` is over. ``grace_us``: how long after its time limit a
    request must have its answer."""
    began = time.time()
    first_window = len(stand.windows)
    clients = Clients(stand.urls, seed)
    servers = stand.platform.document.bootstrap_servers
    bulk = Bulk(servers, stand.payloads.store, seed, items, LANES)

    def strike() -> None:
        started = time.monotonic()
        for fault in faults:
            time.sleep(fault.after_s)
            say(f"{time.monotonic() - started:6.1f} s  {fault}")
            stand.commit(fault)
        stand.await_ready()

    bulk.start()
    try:
        clients.ask_during(strike, at_least=requests)
    finally:
        bulk.finish()
    audit = stand.audit(began)
    assert audit.returncode in {0, 1}, audit.stderr
    return Verdict(
        len(clients.asks),
        tally(clients.asks),
        bulk.tally() if items else {},
        [
            *breaches(clients.asks, stand.windows[first_window:], grace_us),
            *bulk.breaches(),
        ],
        json.loads(audit.stdout),
    )
