"""Whether a version may take the place of the one that answered."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headrace.replay.differences import Differences

__all__ = ["Gate", "Verdict", "judged"]


class Gate(msgspec.Struct, frozen=True):
    """``within``: the least part of the requests that must be answered within the
    tolerance; ``agreement``: the least part of the rows for which every output must
    choose as before (None: not asked). Who was answered then and fails now is counted
    against both."""

    within: float = 1.0
    agreement: float | None = None


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"


def judged(differences: Differences, gate: Gate) -> tuple[Verdict, list[str]]:
    """And what speaks against it."""
    against = []
    asked = differences.compared + differences.failed
    if not differences.compared:
        against.append("nothing was compared")
    elif differences.within / asked < gate.within:
        against.append(
            f"{differences.within} of {asked} requests are answered within the "
            f"tolerance: {differences.within / asked:.2%}, less than {gate.within:.2%}"
        )
    if gate.agreement is not None:
        chosen = {
            name: each for name, each in differences.outputs.items() if each.choices
        }
        if not chosen and differences.compared:
            against.append("no output chooses anything that could agree")
        for name, each in chosen.items():
            # An output may choose several times a row; a failed row missed each.
            missed = differences.failed_rows * each.choices / each.rows
            part = each.agreeing / (each.choices + missed)
            if part < gate.agreement:
                against.append(
                    f"output '{name}' agrees in {part:.2%}, less than "
                    f"{gate.agreement:.2%}"
                )
    return (Verdict.FAIL if against else Verdict.PASS), against
