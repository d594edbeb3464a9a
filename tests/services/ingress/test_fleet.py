"""Which version a request runs on, and which lanes lead to it."""

import pytest

from headrace.domain import Load, ModelState
from headrace.errors import RequestError
from headrace.wire import Role
from tests.services.ingress.models import a_version
from tests.services.ingress.world import World


def a_world(*versions: tuple[str, int]) -> World:
    """Model m with these versions, each at one slot that is heard."""
    world = World(
        *(a_version(version=v, ready_slots=frozenset({slot})) for v, slot in versions)
    )
    for _, slot in versions:
        world.beat(Role.GPU_WORKER, slot)
    return world


def test_unversioned_is_the_highest_number() -> None:
    world = a_world(("9", 0), ("10", 1))
    assert world.fleet.resolve("m").served.version == "10"
    assert world.fleet.ready_versions("m") == ["9", "10"]


def test_a_version_whose_workers_are_silent_is_passed_over() -> None:
    world = a_world(("9", 0), ("10", 1))
    world.clock.advance(2_999_999)
    world.beat(Role.GPU_WORKER, 0)
    assert world.fleet.resolve("m").served.version == "10"
    world.clock.advance(1)
    world.beat(Role.GPU_WORKER, 0)
    assert world.fleet.resolve("m").served.version == "9"
    assert world.fleet.ready_versions("m") == ["9"]
    with pytest.raises(RequestError) as caught:
        world.fleet.resolve("m", "10")
    assert caught.value.reason == "model_unavailable"
    world.beat(Role.GPU_WORKER, 1)
    assert world.fleet.resolve("m").served.version == "10"


def test_a_change_is_seen_by_the_next_request() -> None:
    world = a_world(("1", 0))
    assert world.fleet.resolve("m").served.version == "1"
    world.announce(a_version(version="2"))
    assert world.fleet.resolve("m").served.version == "2"
    world.announce(a_version(version="2"), ModelState.UNLOADING)
    assert world.fleet.resolve("m").served.version == "1"
    world.fleet.withdrawn("m", "1", 0)
    world.fleet.withdrawn("m", "2", 0)
    with pytest.raises(RequestError) as caught:
        world.fleet.resolve("m")
    assert caught.value.reason == "model_unknown"


def test_only_lanes_with_a_heard_slot_lead_to_a_version() -> None:
    world = World(a_version(ready_slots=frozenset({0, 1, 2})), lanes=2)
    for slot in (1, 2):
        world.beat(Role.GPU_WORKER, slot)
    assert world.fleet.resolve("m").lanes == {0, 1}
    world.clock.advance(3_000_000)
    world.beat(Role.GPU_WORKER, 1)
    assert world.fleet.resolve("m").lanes == {1}


def why_not_ready(world: World) -> str | None:
    (info,) = world.fleet.versions()
    return world.fleet.why_not_ready(info)


def test_a_version_is_ready_when_a_former_can_send_to_its_workers() -> None:
    world = World(former=False)
    assert "former" in (why_not_ready(world) or "")
    world.beat(Role.BATCH_FORMER, load=Load(slots=0))
    assert "former" in (why_not_ready(world) or "")
    assert world.fleet.ready_versions("m") == ["1"]
    world.beat(Role.BATCH_FORMER, active=False)
    assert "former" in (why_not_ready(world) or "")
    world.beat(Role.BATCH_FORMER)
    assert why_not_ready(world) is None


def test_a_lane_that_leads_to_another_model_makes_no_version_ready() -> None:
    world = World(a_version(ready_slots=frozenset({1})), lanes=2)
    world.beat(Role.GPU_WORKER, 1)
    assert world.fleet.resolve("m").lanes == {1}
    assert "former" in (why_not_ready(world) or "")


def test_a_failover_is_too_short_to_be_seen() -> None:
    world = World()
    for _ in range(29):
        world.clock.advance(100_000)
        world.beat(Role.GPU_WORKER)
        world.beat(Role.BATCH_FORMER, load=Load(slots=0))
        assert why_not_ready(world) is None
    world.clock.advance(100_000)
    world.beat(Role.GPU_WORKER)
    assert "former" in (why_not_ready(world) or "")
