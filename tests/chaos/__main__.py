"""``make chaos``: every kind of fault, over and over, under 10,000 requests and 20,000
bulk items."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path

from tests.chaos.campaign import campaign
from tests.chaos.faults import EVERY, Kind, one_of_each
from tests.chaos.stand import standing


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--bulk", type=int, default=20_000, help="items beside them")
    parser.add_argument("--rounds", type=int, default=3, help="of every kind of fault")
    parser.add_argument(
        "--minutes", type=float, help="so long, in place of a number of rounds"
    )
    parser.add_argument(
        "--only", type=Kind, action="append", choices=EVERY, help="this kind of fault"
    )
    parser.add_argument(
        "--fused", action="store_true", help="batches go to workers past the log"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    kinds = options.only or EVERY
    if options.minutes is None:
        rounds: Iterable[object] = range(options.rounds)
    else:
        ends_at = time.monotonic() + options.minutes * 60
        rounds = takewhile(lambda _: time.monotonic() < ends_at, count())
    faults = (fault for _ in rounds for fault in one_of_each(rng, kinds))
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        with standing(Path(folder), options.seed, is_fused=options.fused) as stand:
            verdict = campaign(
                stand,
                options.seed,
                faults,
                requests=options.requests,
                items=options.bulk,
            )
        if not verdict.is_clean:
            kept = Path(tempfile.mkdtemp(prefix="headrace-chaos-log-")) / "up.log"
            kept.write_bytes((Path(folder) / "up.log").read_bytes())
            print(f"what the services said: {kept}")
    print(verdict)
    print(f"seed {options.seed}: {'clean' if verdict.is_clean else 'BROKEN'}")
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
