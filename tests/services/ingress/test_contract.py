"""The page for clients names every reason and every limit, with its status."""

import re

from headrace.domain import HTTP_STATUS, Reason
from services.ingress.settings import IngressLimits
from tests.services.ingress.pipeline import ROOT

PAGE = (ROOT / "services/ingress/README.md").read_text()
ROW = re.compile(r"^\| ([0-9, ]+) \| (`.*?) \|", re.MULTILINE)
NEVER_ANSWERED = {
    Reason.CANCELLED,
    Reason.UNDECODABLE,
    Reason.REPLY_ADDRESS,
    Reason.RETENTION_GAP,
}


def test_every_reason_stands_beside_its_status() -> None:
    told = {
        (reason, int(status))
        for statuses, reasons in ROW.findall(PAGE)
        for status in statuses.split(", ")
        for reason in re.findall(r"`(\w+)`", reasons)
    }
    answered = set(Reason) - NEVER_ANSWERED
    assert {reason for reason, _ in told} == answered
    assert {(reason, HTTP_STATUS[reason]) for reason in answered} <= told


def test_every_limit_is_named() -> None:
    limits = PAGE.partition("## Limits")[2].partition("## Health")[0]
    assert set(IngressLimits.model_fields) <= set(re.findall(r"`(\w+)`", limits))
