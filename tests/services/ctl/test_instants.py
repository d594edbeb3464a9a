from __future__ import annotations

import pytest

from services.ctl.errors import UsageError
from services.ctl.instants import instant_us, shown, until_us

NOW_US = 1_700_000_000_000_000
S = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("now", NOW_US),
        ("-90s", NOW_US - 90 * S),
        ("-30m", NOW_US - 1800 * S),
        ("-1.5h", NOW_US - 5400 * S),
        ("-2d", NOW_US - 172_800 * S),
        ("2023-11-14T22:13:20", NOW_US),
        ("2023-11-14T22:13:20.250+00:00", NOW_US + 250_000),
        ("2023-11-14T23:13:20+01:00", NOW_US),
        ("2023-11-14", NOW_US - 80_000 * S),
    ],
)
def test_an_instant_is_written_as_people_do(text: str, expected_us: int) -> None:
    assert instant_us(text, NOW_US, option="--from") == expected_us


@pytest.mark.parametrize("text", ["1h", "-1w", "yesterday", "", "-h"])
def test_what_is_no_instant_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="--from .* is no instant: write -90s"):
        instant_us(text, NOW_US, option="--from")


@pytest.mark.parametrize("text", ["-1h", "0s", "now", "2023-11-14T22:13:20"])
def test_a_deadline_in_the_past_is_wrong_usage(text: str) -> None:
    assert until_us("1.5h", NOW_US, option="--deadline") == NOW_US + 5400 * S
    with pytest.raises(UsageError, match=f"--deadline {text} is in the past"):
        until_us(text, NOW_US, option="--deadline")


def test_an_instant_is_shown_in_utc_to_the_millisecond() -> None:
    assert shown(NOW_US + 5_000) == "2023-11-14T22:13:20.005Z"
