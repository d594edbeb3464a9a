"""A scenario as it is written in TOML, and what it means."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from headrace.admission import AdmissionSettings
from headrace.domain import Priority, Scheduler
from headrace.errors import SetupError
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.simulation.peer import Peer
from headrace.simulation.pool import Loss, ModelSpec, Pool, Table
from headrace.simulation.rules import RULES
from headrace.simulation.workload import Stream, gaps_of

__all__ = ["POLICIES", "Scenario", "explained", "read_scenario"]

MS = 1_000
SECOND_US = 1_000_000
POLICIES = ("headrace", *RULES)
"""The product's own, and those of other systems."""


def _process(text: str) -> str:
    name, _, argument = text.partition(":")
    if name == "backlog":
        if not argument.isdecimal() or not int(argument):
            raise ValueError("say how many requests always wait: backlog:500")
    elif name != "once":
        try:
            next(gaps_of(text, 1.0, np.random.default_rng(0)))
        except SetupError as error:
            raise ValueError(str(error)) from None
    return text


def _priority(value: object) -> object:
    if isinstance(value, str) and value.upper() in Priority.__members__:
        return Priority[value.upper()]
    names = ", ".join(name.lower() for name in Priority.__members__)
    raise ValueError(f"priorities are {names}")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LossSection(_Section):
    worker: NonNegativeInt
    at_s: NonNegativeFloat
    seconds: PositiveFloat
    lease_ms: NonNegativeFloat = 500.0


class PoolSection(_Section):
    workers: PositiveInt = 1
    lanes: PositiveInt = 1
    ingresses: PositiveInt = 1
    request_ms: NonNegativeFloat = 1.0
    control_ms: NonNegativeFloat = 1.0
    response_ms: NonNegativeFloat = 1.0
    noise: NonNegativeFloat = 0.0
    speeds: tuple[PositiveFloat, ...] = ()
    slow_from_s: NonNegativeFloat | None = None
    slow_factor: PositiveFloat = 2.0
    losses: tuple[LossSection, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lanes > self.workers:
            raise ValueError(f"{self.lanes} lanes share only {self.workers} workers")
        for loss in self.losses:
            if loss.worker >= self.workers:
                raise ValueError(f"worker {loss.worker} of losses: count from 0")
        return self

    def build(self, *, admission: bool) -> Pool:
        losses = tuple(
            Loss(
                worker=loss.worker,
                at_s=loss.at_s,
                seconds=loss.seconds,
                lease_us=int(loss.lease_ms * MS),
            )
            for loss in self.losses
        )
        return Pool(
            workers=self.workers,
            lanes=self.lanes,
            ingresses=self.ingresses,
            request_us=int(self.request_ms * MS),
            control_us=int(self.control_ms * MS),
            response_us=int(self.response_ms * MS),
            noise=self.noise,
            speeds=self.speeds,
            slow_from_s=self.slow_from_s,
            slow_factor=self.slow_factor,
            losses=losses,
            admission=admission,
        )


class ModelSection(_Section):
    """One model, or ``count`` that are alike."""

    name: str
    count: PositiveInt = 1
    alpha_ms: NonNegativeFloat = 5.0
    beta_ms: NonNegativeFloat = 0.25
    max_batch: PositiveInt = 32
    run_ms: Mapping[PositiveInt, PositiveFloat] = {}
    """Measured, in place of alpha and beta."""

    reading: Table = Table.LINEAR

    def names(self) -> list[str]:
        if self.count == 1:
            return [self.name]
        return [f"{self.name}-{number}" for number in range(self.count)]

    def build(self) -> list[ModelSpec]:
        return [
            ModelSpec(
                name=name,
                alpha_us=int(self.alpha_ms * MS),
                beta_us=int(self.beta_ms * MS),
                max_batch=self.max_batch,
                table_us={rows: int(ms * MS) for rows, ms in self.run_ms.items()},
                reading=self.reading,
            )
            for name in self.names()
        ]


class StreamSection(_Section):
    """Requests of one tenant and priority, for some of the models."""

    tenant: str = "default"
    priority: Annotated[Priority, BeforeValidator(_priority)] = Priority.STANDARD
    models: tuple[str, ...] = ()
    """Names of model sections; none: all."""

    rate: PositiveFloat | None = None
    """Requests per second."""

    load: PositiveFloat | None = None
    """The same as a part of what the pool could do of these."""

    arrivals: Annotated[str, AfterValidator(_process)] = "poisson"
    limit_ms: PositiveFloat | None = 100.0
    rows: PositiveInt = 1
    shapes: PositiveInt = 1
    start_s: NonNegativeFloat = 0.0
    end_s: PositiveFloat | None = None

    @model_validator(mode="before")
    @classmethod
    def _bulk_has_no_limit(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("priority") == "bulk":
            return {"limit_ms": None, **values}
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = (self.rate is not None) + (self.load is not None)
        if given != (0 if self.is_backlog else 1):
            raise ValueError(
                "a backlog has neither rate nor load"
                if self.is_backlog
                else "say either rate (requests/s) or load (1.0: the capacity)"
            )
        return self

    @property
    def is_backlog(self) -> bool:
        return self.arrivals.startswith("backlog")


class Scenario(_Section):
    """What to simulate."""

    seconds: PositiveFloat = 10.0
    seed: NonNegativeInt = 0
    policy: Literal[
        "headrace", "fifo", "triton", "clipper", "nexus", "clockwork", "symphony"
    ] = "headrace"
    admission: bool = True
    """Whether ingresses refuse what would be late; the product's policy alone."""

    pool: PoolSection = PoolSection()
    models: Annotated[tuple[ModelSection, ...], Field(min_length=1)]
    streams: Annotated[tuple[StreamSection, ...], Field(min_length=1)]
    scheduling: SchedulingSettings = SchedulingSettings()
    door: AdmissionSettings = AdmissionSettings()

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError("two models have one name")
        for stream in self.streams:
            unknown = set(stream.models) - set(names)
            if unknown:
                raise ValueError(f"no model is called {', '.join(sorted(unknown))}")
            for model in self.models:
                if model.max_batch < stream.rows and self._asks(stream, model):
                    raise ValueError(
                        f"{stream.rows} rows of a stream pass max_batch of "
                        f"{model.name}, {model.max_batch}"
                    )
            if (stream.end_s or self.seconds) <= stream.start_s:
                raise ValueError("a stream ends before it starts")
        return self

    def build_pool(self) -> Pool:
        admission = self.admission and self.policy == "headrace"
        return self.pool.build(admission=admission)

    def build_models(self) -> list[ModelSpec]:
        return [spec for model in self.models for spec in model.build()]

    def build_streams(self, *, factor: float = 1.0) -> list[Stream]:
        """``factor`` multiplies what arrives online; bulk stays."""
        specs = self.build_models()
        return [self._stream(stream, specs, factor) for stream in self.streams]

    def new_scheduler(self, models: Sequence[ModelSpec]) -> Callable[[], Scheduler]:
        if self.policy == "headrace":
            numbers = count()
            return lambda: BatchFormer(
                self.scheduling, batch_ids=(str(number) for number in numbers)
            )
        rule = RULES[self.policy]
        run_us = {model.name: model.times_us() for model in models}
        return lambda: Peer(rule(), run_us)

    @property
    def speed(self) -> float:
        """Workers of factor 1 that are as fast as all together."""
        factors = self.pool.speeds or (1.0,)
        return sum(
            1 / factors[slot % len(factors)] for slot in range(self.pool.workers)
        )

    def _stream(
        self, stream: StreamSection, specs: Sequence[ModelSpec], factor: float
    ) -> Stream:
        wanted = {
            name
            for model in self.models
            if self._asks(stream, model)
            for name in model.names()
        }
        places = tuple(place for place, spec in enumerate(specs) if spec.name in wanted)
        rate = stream.rate
        if rate is None:
            cost_us = [specs[place].row_us() * stream.rows for place in places]
            mean_us = sum(cost_us) / len(cost_us)
            rate = (stream.load or 1.0) * self.speed * SECOND_US / mean_us
        limit_ms = stream.limit_ms
        return Stream(
            rate=rate if stream.priority == Priority.BULK else rate * factor,
            start_s=stream.start_s,
            end_s=min(stream.end_s or self.seconds, self.seconds),
            process=stream.arrivals,
            models=places,
            shapes=stream.shapes,
            limit_us=None if limit_ms is None else int(limit_ms * MS),
            priority=stream.priority,
            tenant=stream.tenant,
            rows=stream.rows,
        )

    @staticmethod
    def _asks(stream: StreamSection, model: ModelSection) -> bool:
        return not stream.models or model.name in stream.models


def read_scenario(path: Path) -> Scenario:
    """Raises SetupError that names the file, the key and what would be right."""
    try:
        with path.open("rb") as file:
            return Scenario.model_validate(tomllib.load(file))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"scenario {path} cannot be read: {error}") from error
    except ValidationError as error:
        raise SetupError(f"scenario {path}: {explained(error)}") from error


def explained(error: ValidationError) -> str:
    """Each error with its place."""
    found = []
    errors = error.errors()
    # A list whose only item is wrong is also said to be too short.
    told = [each for each in errors if each["type"] != "too_short"] or errors
    for each in told:
        place = ".".join(str(part) for part in each["loc"])
        text = each["msg"].removeprefix("Value error, ")
        found.append(f"{place}: {text}" if place else text)
    return "; ".join(found)
