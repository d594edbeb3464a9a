"""When requests linger for company."""

from services.ingress.producing import BusySwitch


def after(switch: BusySwitch, per_s: int, start_us: int) -> bool:
    """What it says after 0.2 s of a steady rate."""
    says = False
    for number in range(per_s // 5):
        says = switch.count(start_us + number * 1_000_000 // per_s)
    return says


def test_only_fast_times_are_busy_and_a_middling_rate_changes_nothing() -> None:
    switch = BusySwitch()
    rates = [100, 1000, 2000, 1000, 500, 1000, 3000]
    said = [
        after(switch, per_s, at * 200_000) for at, per_s in enumerate(rates, start=1)
    ]
    assert said == [False, False, True, True, False, False, True]


def test_a_first_request_after_silence_is_quiet() -> None:
    switch = BusySwitch()
    assert after(switch, 5000, 1_000_000)
    assert not switch.count(60_000_000)
