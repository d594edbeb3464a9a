"""What a batch former is told, and by which name."""

import pytest

from headrace.errors import SetupError
from headrace.lifecycle import read_settings
from services.batch_former.settings import OF_THE_BUS, FormerSettings


def test_what_all_services_share_is_the_formers_limit() -> None:
    settings = read_settings(
        FormerSettings,
        {
            "HEADRACE_BUS__KEY_MEMORY_S": "7",
            "HEADRACE_BUS__BATCH_BYTES_MAX": "2000000",
            "HEADRACE_DELIVERY__KEYS_MAX": "8",
            "HEADRACE_SCHEDULING__GATE": "0.5",
        },
    )

    limits = settings.lane_limits
    assert (limits.key_memory_us, limits.keys_max) == (7_000_000, 8)
    scheduler = settings.scheduler
    assert (scheduler.batch_bytes_max, scheduler.gate) == (2_000_000, 0.5)


@pytest.mark.parametrize(("place", "variable"), OF_THE_BUS.items())
def test_a_second_name_for_it_is_refused_with_the_right_one(
    place: tuple[str, str], variable: str
) -> None:
    group, name = place
    with pytest.raises(SetupError, match=f"set {variable}"):
        read_settings(FormerSettings, {f"HEADRACE_{group}__{name}".upper(): "5"})


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ("1,2", "give four numbers, for realtime, .* and bulk, got 2"),
        ("0.5,0.5,0.5,0.5", "parts of one busy time: give at most 1 .* got 2"),
        ("0,-0.1,0,0", "greater than or equal to 0"),
        ("0,nan,0,0", "less than or equal to 1"),
    ],
)
def test_shares_are_four_parts_of_one_busy_time(shares: str, text: str) -> None:
    name = "HEADRACE_SCHEDULING__SHARES"
    with pytest.raises(SetupError, match=f"^{name}={shares}: .*{text}$"):
        read_settings(FormerSettings, {name: shares})
    settings = read_settings(FormerSettings, {name: "0.1,0.2,0.3,0.4"})
    assert settings.scheduling.shares == (0.1, 0.2, 0.3, 0.4)
