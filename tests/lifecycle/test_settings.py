from collections.abc import Mapping

import pytest
from pydantic import BaseModel

from headrace.broker import KafkaConnection, LeaderSettings
from headrace.errors import SetupError
from headrace.lifecycle import AdminSettings, BusSettings, read_settings
from headrace.lifecycle.settings import GROUPS
from headrace.wire.topics import Topics
from services.batch_former.settings import FormerSettings
from services.gpu_worker.settings import GpuWorkerSettings
from services.ingress.settings import IngressSettings


class Limits(BaseModel, frozen=True, extra="forbid"):
    edges: tuple[int, ...] = (32, 64)
    weights: Mapping[str, float] = {}
    share: float = 0.1


class Settings(BaseModel, frozen=True, extra="forbid"):
    admin: AdminSettings = AdminSettings()
    bus: BusSettings = BusSettings()
    limits: Limits = Limits()


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings(Settings, {"PATH": "/bin"}) == Settings()


def test_a_variable_sets_a_field_of_a_group() -> None:
    settings = read_settings(
        Settings,
        {
            "HEADRACE_BUS__LANES": "4",
            "HEADRACE_BUS__PREFIX": "tenant-a.test",
            "HEADRACE_LIMITS__EDGES": "16,128",
            "HEADRACE_LIMITS__SHARE": "0.5",
            "HEADRACE_LIMITS__WEIGHTS": "acme=2,globex=0.5",
        },
    )
    assert settings == Settings(
        bus=BusSettings(lanes=4, prefix="tenant-a.test"),
        limits=Limits(edges=(16, 128), share=0.5, weights={"acme": 2, "globex": 0.5}),
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HEADRACE_BUS__LANS", "HEADRACE_BUS__LANES"),
        ("HEADRACE_BUZ__LANES", "HEADRACE_BUS__LANES"),
        ("HEADRACE_BUS_LANES", "HEADRACE_BUS__LANES"),
        ("HEADRACE_ADMIN__PORTS", "HEADRACE_ADMIN__PORT"),
        ("headrace_bus__lanes".upper() + "_", "HEADRACE_BUS__LANES"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_right_one(
    name: str, meant: str
) -> None:
    with pytest.raises(SetupError) as refused:
        read_settings(Settings, {name: "4"})
    assert str(refused.value) == f"{name} is not a setting: did you mean {meant}?"


def test_the_groups_are_those_that_some_service_reads() -> None:
    services: tuple[type[BaseModel], ...] = (
        FormerSettings,
        GpuWorkerSettings,
        IngressSettings,
    )
    assert {group for each in services for group in each.model_fields} == GROUPS


def test_groups_of_other_services_may_stand_in_the_same_environment() -> None:
    environ = {"HEADRACE_WORKER__PREVIOUS_EXIT": "0", "HEADRACE_DEMO_JSON": "out.json"}
    assert read_settings(Settings, environ) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("HEADRACE_BUS__LANES", "two", "valid integer"),
        ("HEADRACE_BUS__LANES", "0", "greater than 0"),
        ("HEADRACE_ADMIN__PORT", "70000", "less than or equal to 65535"),
        ("HEADRACE_BUS__POOL", "a.b", "should match pattern"),
        ("HEADRACE_LIMITS__EDGES", "8,x", "valid integer"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(
    name: str, value: str, sentence: str
) -> None:
    with pytest.raises(SetupError) as refused:
        read_settings(Settings, {name: value})
    assert str(refused.value).startswith(f"{name}={value}: ")
    assert sentence in str(refused.value)


def test_a_batch_must_hold_any_request() -> None:
    with pytest.raises(SetupError, match=r"at least payload_bytes_max \(1048576\)"):
        read_settings(Settings, {"HEADRACE_BUS__BATCH_BYTES_MAX": "1000"})


def test_the_bus_names_topics_clients_and_timers() -> None:
    bus = BusSettings(prefix="p", pool="q", cell="c", session_ms=3000)
    assert bus.topics == Topics("p", "q", "c")
    assert bus.connection("ingress-0") == KafkaConnection(
        "127.0.0.1:9092", "ingress-0", 16 * 1024 * 1024
    )
    assert bus.leader == LeaderSettings(session_ms=3000)


def test_a_leaders_timers_follow_from_its_session() -> None:
    assert LeaderSettings(3000).config() == {
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 250,
        "max.poll.interval.ms": 10_000,
    }
    assert LeaderSettings(6000).config() == {
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 250,
        "max.poll.interval.ms": 15_000,
    }


def test_a_value_without_its_name_is_refused() -> None:
    with pytest.raises(SetupError, match="HEADRACE_LIMITS__WEIGHTS=2: "):
        read_settings(Settings, {"HEADRACE_LIMITS__WEIGHTS": "2"})
