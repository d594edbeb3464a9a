"""``python -m tests.chaos.times``: how soon the work of what was killed goes on, over
many rounds, beside what is promised. A busy machine makes everything longer: the load
is told with the figures."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.chaos.clients import MODELS, Clients
from tests.chaos.faults import Kind
from tests.chaos.history import GRACE_US, REFUSALS, End, breaches
from tests.chaos.recovery import LIMIT_MS, Recovery, watch
from tests.chaos.stand import LANES, Stand, standing

BUSY = MODELS[1]
"""A simulated accelerator with batches of 40 ms: with so many clients a worker that is
killed has work."""
ALPHA_MS = 40
CLIENTS = 32
UNHURRIED_MS = 30_000
CALM_S = 2.0
"""With what a round takes, each process lives the 5 s after which the end of one is
its first again: it is restarted at once."""

AWAY_S = 10.0
MODELS_MAX = 50


@dataclass(frozen=True)
class Trial:
    """``bound_ms`` None: nothing is promised but that it is over, with no process
    started anew."""

    what: str
    kind: Kind
    bound_ms: int | None
    figure: Callable[[Recovery], float]
    workers: int = 2 * LANES
    idle_models: int = 0
    stays_away_s: float = 0


def _slowest(seen: Recovery) -> float:
    return seen.slowest_ms


def _resumed(seen: Recovery) -> float:
    return seen.resumed_ms


TRIALS = {
    "worker": Trial(
        "a worker, another one in its lane", Kind.KILL_WORKER, 1_500, _slowest
    ),
    "lone-worker": Trial(
        "a worker, alone in its lane", Kind.KILL_WORKER, 3_000, _slowest, workers=LANES
    ),
    "former": Trial("a former", Kind.KILL_FORMER, 2_000, _slowest),
    "former-gone": Trial(
        "a former that is not restarted",
        Kind.KILL_FORMER,
        8_000,
        _slowest,
        stays_away_s=AWAY_S,
    ),
    "broker": Trial(
        f"the broker, {MODELS_MAX} models, from when it is back",
        Kind.RESTART_BROKER,
        None,
        _resumed,
        idle_models=MODELS_MAX - len(MODELS),
    ),
    "broker-killed": Trial(
        f"the broker by kill -9, {MODELS_MAX} models, from when it is back",
        Kind.KILL_BROKER,
        None,
        _resumed,
        idle_models=MODELS_MAX - len(MODELS),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.times", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", action="append", choices=TRIALS)
    options = parser.parse_args()
    kept = [_try(TRIALS[name], options.rounds) for name in options.only or list(TRIALS)]
    return 0 if all(kept) else 1


def _try(trial: Trial, rounds: int) -> bool:
    """Whether it kept to its bound, and no request was lost, wrong or late."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-times-") as folder,
        standing(
            Path(folder),
            0,
            workers=trial.workers,
            idle_models=trial.idle_models,
            alpha_ms=ALPHA_MS,
        ) as stand,
    ):
        return _rounds(stand, trial, rounds)


def _rounds(stand: Stand, trial: Trial, rounds: int) -> bool:
    figures, found = [], []
    for number in range(rounds):
        time.sleep(CALM_S)
        pids = stand.all_pids()
        clients = Clients(
            stand.urls,
            number,
            count=CLIENTS,
            limits_ms=(UNHURRIED_MS, LIMIT_MS),
            pause_s=0,
            keyed=0,
            models=(BUSY,),
        )
        seen = watch(
            stand, clients, trial.kind, number, stays_away_s=trial.stays_away_s
        )
        figures.append(trial.figure(seen))
        found += breaches(seen.asks, (), GRACE_US)
        if trial.bound_ms is None and stand.all_pids() != pids:
            found.append("a process was started anew")
        print(f"  {_told(seen)}: {figures[-1]:.0f} ms", flush=True)
    least, middle, most = min(figures), median(figures), max(figures)
    bound = f", {trial.bound_ms} ms are promised" if trial.bound_ms else ""
    print(
        f"{trial.what}: {least:.0f}, {middle:.0f}, {most:.0f} ms (least, median, most "
        f"of {rounds}){bound}; load {os.getloadavg()[0]:.1f}",
        *found,
        sep="\n",
        flush=True,
    )
    return not found and (trial.bound_ms is None or most <= trial.bound_ms)


def _told(seen: Recovery) -> str:
    """Where the requests of a round ended, and how long the fault itself lasted."""
    refused = sum(
        ask.end is End.ANSWERED and ask.status in REFUSALS for ask in seen.asks
    )
    lasted_ms = (seen.over_us - seen.struck_us) / 1000
    return (
        f"{len(seen.asks)} requests, {refused} refused, struck for {lasted_ms:.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
