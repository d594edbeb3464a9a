"""A wall clock that is wrong, by up to 500 ms, in each process by another amount.

Python imports this at the start of every process that has the folder on PYTHONPATH.
"""

import os
import random
import sys
import time

_SKEW_S_MAX = 0.5

_seed = os.environ.get("CHAOS_SKEW_SEED")
if _seed is not None:
    # By its command line: a restarted process keeps its clock.
    _skew_s = random.Random(f"{_seed} {sys.orig_argv}").uniform(
        -_SKEW_S_MAX, _SKEW_S_MAX
    )
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _skew_s
    time.time_ns = lambda: _time_ns() + round(_skew_s * 1e9)
