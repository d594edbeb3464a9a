"""docker-compose.yml and the Dockerfile, checked without a container."""

import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml
from pydantic import BaseModel

from headrace.embedded import KAFKA_VERSION
from headrace.embedded.properties import server_properties
from headrace.lifecycle import read_settings
from headrace.telemetry import (
    FormerMetrics,
    IngressMetrics,
    MetricsRegistry,
    ProcessMetrics,
    WorkerMetrics,
)
from services.batch_former.settings import FormerSettings
from services.gpu_worker.settings import GpuWorkerSettings
from services.ingress.settings import IngressSettings
from tests.architecture.checkout import ROOT, project

COMPOSE: dict[str, Any] = yaml.safe_load(
    (ROOT / "docker-compose.yml").read_text("utf-8")
)
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
STAGES = dict(
    re.findall(r"^FROM base AS (\w+)\n((?:(?!FROM ).*\n)*)", DOCKERFILE, re.MULTILINE)
)
SETTINGS: dict[str, type[BaseModel]] = {
    "ingress": IngressSettings,
    "batch_former": FormerSettings,
    "gpu_worker": GpuWorkerSettings,
}
# Where the broker listens and keeps its log is another matter in a container.
OF_THE_PLACE = {
    "advertised.listeners",
    "controller.quorum.bootstrap.servers",
    "listeners",
    "log.dirs",
}
# What only a small heap or a busy two-core machine needs.
OF_THE_SIZE = {
    "background.threads",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
}


# Commands about a checkout, where everything is installed; imported when called.
OF_A_CHECKOUT = ("services.ctl.checking", "services.ctl.demo", "services.ctl.doctor")


def normalized(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def run_tool(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).with_name(command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_compose_keeps_to_its_schema() -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    done = run_tool("check-jsonschema", *schema, "docker-compose.yml")
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_is_clean() -> None:
    done = run_tool("hadolint", "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_every_built_service_is_a_stage_of_its_name() -> None:
    built = {
        name: service["build"]["target"]
        for name, service in COMPOSE["services"].items()
        if "build" in service
    }
    assert built == {name: name for name in STAGES if name != "ctl"}


def test_every_config_is_used_and_readable() -> None:
    used = {
        config["source"]: config["target"]
        for service in COMPOSE["services"].values()
        for config in service.get("configs", [])
    }
    assert used.keys() == COMPOSE["configs"].keys()
    for name, target in used.items():
        content = COMPOSE["configs"][name]["content"]
        parsed = (
            json.loads(content) if target.endswith(".json") else yaml.safe_load(content)
        )
        assert parsed, name


def test_the_dashboard_shows_metrics_that_exist() -> None:
    registry = MetricsRegistry()
    for metrics in (ProcessMetrics, IngressMetrics, FormerMetrics, WorkerMetrics):
        metrics(registry)
    known = {
        family.name + suffix
        for family in registry.collectors.collect()
        for suffix in {
            "counter": ("_total",),
            "gauge": ("",),
            "histogram": ("_bucket", "_count", "_sum"),
        }[family.type]
    }
    dashboard = json.loads(COMPOSE["configs"]["grafana_headrace"]["content"])
    shown = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"headrace_\w+", target["expr"])
    }
    assert len(shown) >= len(dashboard["panels"])
    assert shown - known == set()


def test_kafka_in_the_container_is_set_up_as_the_embedded_one() -> None:
    kafka = COMPOSE["services"]["kafka"]
    assert kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    text = server_properties(
        port=1,
        advertised_port=1,
        controller_port=2,
        log_folder=Path("/x"),
        batch_bytes_max=16 << 20,
    )
    embedded = dict(line.split("=", 1) for line in text.splitlines())
    contained = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in kafka["environment"].items()
    }
    for name in embedded.keys() - OF_THE_PLACE - OF_THE_SIZE:
        assert contained[name] == embedded[name], name


@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_takes_the_settings_it_is_given(service: str) -> None:
    given = {k: str(v) for k, v in COMPOSE["services"][service]["environment"].items()}
    settings = read_settings(SETTINGS[service], given).model_dump()
    for name, value in given.items():
        group, field = name.removeprefix("HEADRACE_").lower().split("__")
        assert str(settings[group][field]) == value


def test_files_outlive_the_container_that_may_write_them() -> None:
    ingress = COMPOSE["services"]["ingress"]
    (mount,) = ingress["volumes"]
    volume, folder = mount.split(":")
    assert volume in COMPOSE["volumes"]
    assert ingress["environment"]["HEADRACE_FILES__URL"] == f"file://{folder}"
    stage = STAGES["ingress"]
    (user,) = re.findall(r"^USER (\d+)$", stage, re.MULTILINE)
    assert f"install --directory --owner {user} {folder}\n" in stage


def test_the_image_pins_the_uv_of_the_makefile() -> None:
    pins = r"UV_VERSION ?:?= ?(\S+)\s.*?UV_SHA256 ?:?= ?(\w+)"
    makefile = re.search(pins, (ROOT / "Makefile").read_text("utf-8"), re.DOTALL)
    image = re.search(pins, DOCKERFILE, re.DOTALL)
    assert makefile is not None
    assert image is not None
    assert image.groups() == makefile.groups()


@pytest.mark.parametrize("service", sorted(STAGES))
def test_an_image_holds_what_its_service_imports(service: str) -> None:
    if not (ROOT / "services" / service / "__main__.py").exists():
        pytest.skip("the service does not exist yet")
    declared = [*project()["project"]["dependencies"]]
    for extra in re.findall(r"--extra (\w+)", STAGES[service]):
        declared += project()["project"]["optional-dependencies"][extra]
    held = {normalized(re.split(r"[\[>=<]", line)[0]) for line in declared}
    graph = grimp.build_graph("headrace", "services", include_external_packages=True)
    for module in [name for name in graph.modules if name.startswith(OF_A_CHECKOUT)]:
        graph.remove_module(module)
    modules = graph.find_upstream_modules(f"services.{service}", as_package=True)
    names = {name for name in modules if graph.is_module_squashed(name)}
    homes = packages_distributions()
    missing = {
        name
        for name in names - sys.stdlib_module_names
        if not set(map(normalized, homes.get(name.split(".")[0], []))) & held
    }
    assert missing == set()
