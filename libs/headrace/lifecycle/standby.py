"""A process that waits, with its imports behind it, to take the place of another."""

from __future__ import annotations

import argparse
import os
import sys

__all__ = ["add_standby", "stand_by"]


def add_standby(parser: argparse.ArgumentParser) -> None:
    """The option that :func:`stand_by` obeys."""
    parser.add_argument(
        "--standby",
        type=int,
        metavar="FD",
        help="wait until something is written to this descriptor before beginning, and "
        "end when it is closed: a start without the interpreter's and the imports'",
    )


def stand_by(options: argparse.Namespace) -> None:
    """Return when the process is to begin, at once where it was not told to wait;
    ends the process that is not needed."""
    if options.standby is not None and not os.read(options.standby, 1):
        sys.exit()
