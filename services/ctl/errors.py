"""The errors of the command line beside those of the platform."""

from __future__ import annotations

from headrace.errors import HeadraceError

__all__ = ["UsageError"]


class UsageError(HeadraceError):
    """Options that cannot be meant together; exit status 2."""
