"""Whether the platform kept its promises, from what lies in the log.

The evidence and the findings are those of the delivery protocol: every request ends in
a reply, a result, a dead letter, its client's cancel or a stale range; nothing is
committed before that.
"""

from headrace.audit.joining import Audit
from headrace.audit.limits import AuditLimits
from headrace.audit.lives import invites_retry
from headrace.audit.reading import AuditRange, audit_log
from headrace.audit.report import Counts, Finding, Kind, Report, Suspect

__all__ = [
    "Audit",
    "AuditLimits",
    "AuditRange",
    "Counts",
    "Finding",
    "Kind",
    "Report",
    "Suspect",
    "audit_log",
    "invites_retry",
]
