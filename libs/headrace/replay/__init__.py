"""Yesterday's requests once more: read from the log, run, and held against what was
answered then.

The modules ``export`` and ``page`` are imported by name, since they take half a second.
"""

from headrace.replay.conditions import Condition, Facts
from headrace.replay.differences import (
    Allowed,
    Comparison,
    Differences,
    Latency,
    VersionFigures,
)
from headrace.replay.joining import CANCELLED, REPLAY_SOURCE, Join, JoinCounts
from headrace.replay.payloads import Payloads
from headrace.replay.reading import REPLAY_TENANT, Recording
from headrace.replay.recorded import RECORDED_FACTS, Ending, Recorded
from headrace.replay.report import Report
from headrace.replay.running import LOST, UNFIT, Replayed, Rerun
from headrace.replay.selection import At, Bound, Selection
from headrace.replay.verdict import Gate, Verdict, judged

__all__ = [
    "CANCELLED",
    "LOST",
    "RECORDED_FACTS",
    "REPLAY_SOURCE",
    "REPLAY_TENANT",
    "UNFIT",
    "Allowed",
    "At",
    "Bound",
    "Comparison",
    "Condition",
    "Differences",
    "Ending",
    "Facts",
    "Gate",
    "Join",
    "JoinCounts",
    "Latency",
    "Payloads",
    "Recorded",
    "Recording",
    "Replayed",
    "Report",
    "Rerun",
    "Selection",
    "Verdict",
    "VersionFigures",
    "judged",
]
