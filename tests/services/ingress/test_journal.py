"""What of many failures is written down."""

from structlog.testing import capture_logs

from services.ingress.journal import LINES_AT_ONCE_MAX, LINES_PER_S
from tests.services.ingress.world import World

UNKNOWN_PRIORITY = (b"headrace-priority", b"urgent")


def test_few_failures_are_written_and_of_many_the_rest_is_counted() -> None:
    with capture_logs() as lines:
        world = World()
        for _ in range(LINES_AT_ONCE_MAX + 30):
            world.ask(UNKNOWN_PRIORITY)
        assert len(lines) == LINES_AT_ONCE_MAX

        world.clock.advance(1_000_000)
        for _ in range(LINES_PER_S + 1):
            world.ask(UNKNOWN_PRIORITY)

    counted, *one_by_one = lines[LINES_AT_ONCE_MAX:]
    assert counted["unlogged"] == 30
    assert len(one_by_one) == LINES_PER_S
    assert {line["reason"] for line in one_by_one} == {"invalid"}
