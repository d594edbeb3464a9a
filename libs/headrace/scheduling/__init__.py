"""The scheduling core: pure decisions about which requests run together, when, where.

Behind the boundary of :mod:`headrace.domain.dispatch`.
"""

from headrace.scheduling.estimate import RunTimes
from headrace.scheduling.former import BatchFormer
from headrace.scheduling.publishing import Publishing
from headrace.scheduling.settings import SchedulingSettings

__all__ = ["BatchFormer", "Publishing", "RunTimes", "SchedulingSettings"]
