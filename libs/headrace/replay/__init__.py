"""Yesterday's requests once more: read from the log, run, and held against what was
answered then."""

from headrace.replay.conditions import Condition, Facts

__all__ = ["Condition", "Facts"]
