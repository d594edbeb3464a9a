import subprocess
import sys

import msgspec
import pytest

START = """
import logging
from headrace.telemetry import LogSettings, configure_logs, get_log

configure_logs(LogSettings(format="{form}", level="{level}"), service="test", slot=1)
log = get_log(lane=2)
log.debug("loop.paused", ms=1)
log.info("lane.taken", epoch=7)
try:
    secret = "tensor"
    1 / 0
except ZeroDivisionError as error:
    log.error("process.failed", exc_info=error)
logging.getLogger("some.library").warning("a %s", "warning")
logging.getLogger("some.library").info("too quiet")
"""


def lines(form: str, level: str = "info") -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", START.format(form=form, level=level)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout == ""
    assert "tensor" not in ended.stderr
    return ended.stderr.splitlines()


@pytest.mark.parametrize("form", ["json", "auto"])
def test_an_event_is_one_json_line_off_a_terminal(form: str) -> None:
    taken, failed, library = (msgspec.json.decode(line) for line in lines(form))
    assert taken.pop("timestamp")[10:11] == "T"
    assert taken == {
        "event": "lane.taken",
        "level": "info",
        "service": "test",
        "slot": 1,
        "lane": 2,
        "epoch": 7,
    }
    assert failed["exception"].endswith("ZeroDivisionError: division by zero")
    assert (library["event"], library["library"], library["text"]) == (
        "library.logged",
        "some.library",
        "a warning",
    )


def test_logfmt_has_the_event_first() -> None:
    first = lines("logfmt")[0].split(" ")
    assert first[1:3] == ["level=info", "event=lane.taken"]
    assert {"epoch=7", "lane=2", "service=test", "slot=1"} <= set(first)


def test_the_console_is_for_people() -> None:
    first = lines("console")[0]
    assert "lane.taken" in first
    assert "epoch=7" in first
    assert not first.startswith("{")


def test_the_level_decides_what_is_written() -> None:
    assert "loop.paused" in lines("json", "debug")[0]
    assert len(lines("json", "error")) == 1
