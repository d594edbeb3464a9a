"""A profile for runs that only ask whether a test fails, not with what least input."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile(
    "verdict",
    settings.get_profile("same"),
    phases=[Phase.explicit, Phase.generate],
)
