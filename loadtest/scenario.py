"""Scenarios as TOML; the docstrings are the reference of a file's keys."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from headrace.errors import SetupError
from headrace.simulation import explained

__all__ = [
    "SCENARIOS",
    "Mlp",
    "Model",
    "Platform",
    "Run",
    "Scenario",
    "Simulated",
    "Step",
    "Stream",
    "Target",
    "read_scenario",
]

SCENARIOS = Path(__file__).parent / "scenarios"
CLOSED = "closed"


class Simulated(BaseModel, frozen=True, extra="forbid"):
    """An accelerator that only sleeps: a batch of b rows takes ``alpha_ms +
    beta_ms * b``. Its outputs are its inputs, so every answer is checked."""

    kind: Literal["simulated"]
    alpha_ms: NonNegativeFloat
    beta_ms: NonNegativeFloat
    max_batch: PositiveInt = 32
    objective_ms: PositiveFloat | None = None
    shape: tuple[int, ...] = (64,)
    """Of one row, FP32; -1 where it varies."""

    @property
    def capacity(self) -> float:
        """Rows per second of one accelerator that never waits."""
        return self.max_batch * 1000 / (self.alpha_ms + self.beta_ms * self.max_batch)


class Mlp(BaseModel, frozen=True, extra="forbid"):
    """64 floats in, two layers of 256, 10 floats out: so little work that the path
    around it is what is measured."""

    kind: Literal["mlp"]
    max_batch: PositiveInt = 64
    objective_ms: PositiveFloat | None = None


Model = Annotated[Simulated | Mlp, Field(discriminator="kind")]


class Platform(BaseModel, frozen=True, extra="forbid"):
    """What ``headrace up`` is started with; every run happens on each platform."""

    ingress: PositiveInt = 1
    formers: PositiveInt = 1
    workers: PositiveInt = 1
    lanes: PositiveInt = 1
    fused: bool = False
    """Batches go from formers to workers past the log."""
    environment: dict[str, str] = {}
    """Settings of the services, such as HEADRACE_SCHEDULING__...; best none."""

    @property
    def label(self) -> str:
        """What is not as usual."""
        counts = self.model_dump(exclude_defaults=True)
        return " ".join(f"{key}={value}" for key, value in counts.items())


class Step(BaseModel, frozen=True, extra="forbid"):
    """A part of a stream: ``load`` for so many seconds."""

    load: PositiveFloat
    seconds: PositiveFloat


class Stream(BaseModel, frozen=True, extra="forbid"):
    """Requests of one kind. Open loop: ``load``, ``per_second`` or ``steps``."""

    model: str

    arrivals: str = "poisson"
    """``closed``: each connection asks again when it is answered. Else, as in the
    simulator: ``poisson``, ``even``, ``gamma:CV2`` or ``trace:FILE``."""

    connections: PositiveInt = 2048
    """Closed loop: how many. Open loop: at most so many, the rest waits."""

    load: PositiveFloat | None = None
    """Multiples of the capacity: of a simulated accelerator its own, else the best
    closed loop before on this platform."""

    per_second: PositiveFloat | None = None

    steps: tuple[Step, ...] = ()

    shapes: tuple[tuple[PositiveInt, ...], ...] = ()
    """Shapes of a row, in turn; absent: the model's own, 64 where that varies."""

    priority: Literal["realtime", "interactive", "standard", "bulk"] = "standard"
    timeout_ms: PositiveInt | None = None
    tenant: str = "default"

    @property
    def closed_loop(self) -> bool:
        return self.arrivals == CLOSED

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        given = (self.load is not None) + (self.per_second is not None)
        given += bool(self.steps)
        if self.closed_loop and given:
            raise ValueError("a closed loop has no load, per_second or steps")
        if not self.closed_loop and given != 1:
            raise ValueError("say one of load, per_second and steps")
        return self


class Target(BaseModel, frozen=True, extra="forbid"):
    """What a figure must be at least, or at most."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("say either at_least or at_most")
        return self

    def is_met(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        assert self.at_most is not None
        return value <= self.at_most

    def __str__(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}"


class Run(BaseModel, frozen=True, extra="forbid"):
    """Streams that are sent at the same time; figures are of the first one, the
    others are its company."""

    name: str
    streams: Annotated[tuple[Stream, ...], Field(min_length=1)]
    seconds: PositiveFloat = 10.0
    """Streams with steps last as long as their steps."""

    slo_ms: PositiveFloat = 100.0
    targets: dict[str, Target] = {}
    """By the name of a figure in ``figures.py``."""

    @property
    def length_s(self) -> float:
        lengths = [sum(step.seconds for step in each.steps) for each in self.streams]
        return max(lengths) or self.seconds


class Scenario(BaseModel, frozen=True, extra="forbid"):
    """One file of ``scenarios/``."""

    title: str
    models: dict[str, Model]
    platforms: Annotated[tuple[Platform, ...], Field(min_length=1)] = (Platform(),)
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]

    warm_up_s: NonNegativeFloat = 15.0
    """Closed loop before the first run: the broker's JIT compiles meanwhile."""

    @model_validator(mode="after")
    def _models_exist(self) -> Self:
        for run in self.runs:
            for stream in run.streams:
                if stream.model not in self.models:
                    raise ValueError(
                        f"run {run.name!r} asks for the model {stream.model!r}, which "
                        f"is not one of {', '.join(self.models)}"
                    )
        return self


def read_scenario(name: str) -> Scenario:
    """A scenario by the path of its file, or by its name in ``scenarios/``.

    Raises SetupError with the key that is wrong.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = SCENARIOS / f"{name}.toml"
    try:
        return Scenario.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        known = ", ".join(sorted(file.stem for file in SCENARIOS.glob("*.toml")))
        raise SetupError(
            f"the scenario {name} cannot be read ({error.strerror}); there are {known}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise SetupError(f"{path}: {explained(error)}") from error
