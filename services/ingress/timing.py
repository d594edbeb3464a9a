"""How long a request may take, and is waited for."""

from __future__ import annotations

from headrace.domain import Reason
from services.ingress.exchange import Exchange
from services.ingress.head import Head
from services.ingress.refusal import Refusal, refuse

__all__ = ["ACCEPT_US", "over", "unanswered", "waits_to"]

ACCEPT_US = 5_000_000
"""Longest that 202 waits for the log."""


def over(exchange: Exchange) -> Refusal:
    limit_ms = f"{exchange.limit_us / 1000:g} ms"
    text = f"the time limit of {limit_ms} was over before the body was there"
    return refuse(Reason.EXPIRED, text)


def waits_to(head: Head, now_us: int, deadline_us: int) -> int:
    return min(now_us + ACCEPT_US, deadline_us) if head.is_async else deadline_us


def unanswered(exchange: Exchange) -> Refusal:
    """At the end of :func:`waits_to`."""
    limit_ms = exchange.limit_us / 1000
    if exchange.is_claiming or exchange.is_unclaiming:
        what = "take the request" if exchange.is_claiming else "give the answer"
        text = f"the payload store did not {what} within the limit of {limit_ms:g} ms"
        return refuse(Reason.STORE_UNAVAILABLE, text, admitted=exchange.is_unclaiming)
    if exchange.head.is_async and exchange.limit_us > ACCEPT_US:
        return refuse(
            Reason.LOG_UNAVAILABLE,
            f"the log has not said within {ACCEPT_US // 1_000_000} s that it has the "
            "request",
        )
    text = f"no answer came within the time limit of {limit_ms:g} ms"
    return refuse(Reason.EXPIRED, text, admitted=True)
