"""Whether two answers to one request say the same, and how far they are apart."""

from headrace.comparison.arrays import array_of
from headrace.comparison.outputs import (
    BIN_EDGES,
    OutputFigures,
    OutputTotals,
    Row,
    WorstRow,
)
from headrace.comparison.rounding import (
    Tolerance,
    are_equal_but_for_rounding,
    rounding_of,
)

__all__ = [
    "BIN_EDGES",
    "OutputFigures",
    "OutputTotals",
    "Row",
    "Tolerance",
    "WorstRow",
    "are_equal_but_for_rounding",
    "array_of",
    "rounding_of",
]
