"""When requests linger for company."""

from services.ingress.producing import PATIENT_FROM_MS, Pace, PaceMaker


def after(maker: PaceMaker, per_s: int, start_us: int, in_flight: int = 0) -> Pace:
    """What it says after 0.2 s of a steady rate."""
    says = Pace.QUIET
    for number in range(per_s // 5):
        says = maker.count(start_us + number * 1_000_000 // per_s, in_flight)
    return says


def test_only_fast_times_are_busy_and_a_middling_rate_changes_nothing() -> None:
    maker = PaceMaker()
    rates = [100, 1000, 2000, 1000, 500, 1000, 3000]
    said = [
        after(maker, per_s, at * 200_000) for at, per_s in enumerate(rates, start=1)
    ]
    quiet, busy = Pace.QUIET, Pace.BUSY
    assert said == [quiet, quiet, busy, busy, quiet, quiet, busy]


def test_a_first_request_after_silence_is_quiet() -> None:
    maker = PaceMaker()
    assert after(maker, 5000, 1_000_000) is Pace.BUSY
    assert maker.count(60_000_000, 1000) is Pace.QUIET


def test_a_request_behind_a_long_queue_is_patient() -> None:
    waiting = 2000 * PATIENT_FROM_MS // 1000
    assert after(PaceMaker(), 2000, 0, in_flight=waiting - 2) is Pace.BUSY
    assert after(PaceMaker(), 2000, 0, in_flight=waiting + 2) is Pace.PATIENT


def test_a_queue_of_middling_length_changes_nothing() -> None:
    maker = PaceMaker()
    waits_ms = [8, 12, 8, 5, 8]
    said = [
        after(maker, 3000, at * 200_000, in_flight=3 * wait_ms)
        for at, wait_ms in enumerate(waits_ms, start=1)
    ]
    busy, patient = Pace.BUSY, Pace.PATIENT
    assert said == [busy, patient, patient, busy, busy]


def test_a_long_queue_of_few_requests_is_no_reason_to_linger() -> None:
    assert after(PaceMaker(), 100, 0, in_flight=1000) is Pace.QUIET
