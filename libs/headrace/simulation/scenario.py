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
    Strict,
    ValidationError,
    model_validator,
)

from headrace.admission import AdmissionSettings
from headrace.domain import Priority, Scheduler
from headrace.errors import SetupError
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.simulation.limits import (
    BACKLOG_MAX,
    KIND_SECONDS_MAX,
    PIECES_MAX,
    REQUESTS_MAX,
    RUN_TIMES_MAX,
    Duration,
    Factor,
    Instant,
    Load,
    Milliseconds,
    Noise,
    Pieces,
    Rate,
    RunTime,
    Seed,
    TimeLimit,
)
from headrace.simulation.peer import Peer
from headrace.simulation.pool import Loss, ModelSpec, Pool, Table
from headrace.simulation.rules import RULES
from headrace.simulation.workload import Stream, gaps_of

__all__ = ["POLICIES", "Scenario", "explained", "read_scenario"]

MS = 1_000
SECOND_US = 1_000_000
Scalar = str | int | float
POLICIES = ("headrace", *RULES)
"""The product's own, and those of other systems."""


def _us(ms: float) -> int:
    return round(ms * MS)


def _process(text: str) -> str:
    name, _, argument = text.partition(":")
    if name == "backlog":
        is_number = argument.isdecimal() and len(argument) < 9
        if not is_number or not 1 <= int(argument) <= BACKLOG_MAX:
            raise ValueError(
                f"say how many requests always wait, 1 to {BACKLOG_MAX:,}: backlog:500"
            )
    elif text != "once":
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
    worker: Annotated[int, Strict(), Field(ge=0)]
    at_s: Instant
    seconds: Duration
    lease_ms: Milliseconds = 500.0


class PoolSection(_Section):
    workers: Pieces = 1
    lanes: Pieces = 1
    ingresses: Pieces = 1
    request_ms: Milliseconds = 1.0
    control_ms: Milliseconds = 1.0
    response_ms: Milliseconds = 1.0
    noise: Noise = 0.0
    speeds: tuple[Factor, ...] = ()
    slow_from_s: Instant | None = None
    slow_factor: Factor = 2.0
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
                lease_us=_us(loss.lease_ms),
            )
            for loss in self.losses
        )
        return Pool(
            workers=self.workers,
            lanes=self.lanes,
            ingresses=self.ingresses,
            request_us=_us(self.request_ms),
            control_us=_us(self.control_ms),
            response_us=_us(self.response_ms),
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
    count: Pieces = 1
    alpha_ms: RunTime = 5.0
    beta_ms: RunTime = 0.25
    max_batch: Pieces = 32
    run_ms: Mapping[Annotated[int, Field(ge=1, le=PIECES_MAX)], RunTime] = {}
    """Measured, in place of alpha and beta."""

    reading: Table = Table.LINEAR

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.run_ms:
            name, one_us = "run_ms", min(map(_us, self.run_ms.values()))
        else:
            name, one_us = "alpha_ms and beta_ms", self._alpha_us + self._beta_us
        if not one_us:
            raise ValueError(
                f"{name} give a run no time: give it at least 0.001 ms, which is "
                "counted in whole microseconds"
            )
        return self

    @property
    def _alpha_us(self) -> int:
        return _us(self.alpha_ms)

    @property
    def _beta_us(self) -> int:
        return _us(self.beta_ms)

    def names(self) -> list[str]:
        if self.count == 1:
            return [self.name]
        return [f"{self.name}-{number}" for number in range(self.count)]

    def build(self) -> list[ModelSpec]:
        return [
            ModelSpec(
                name=name,
                alpha_us=self._alpha_us,
                beta_us=self._beta_us,
                max_batch=self.max_batch,
                table_us={rows: _us(ms) for rows, ms in self.run_ms.items()},
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

    rate: Rate | None = None
    """Requests per second."""

    load: Load | None = None
    """The same as a part of what the pool could do of these."""

    arrivals: Annotated[str, AfterValidator(_process)] = "poisson"
    limit_ms: TimeLimit | None = 100.0
    rows: Pieces = 1
    shapes: Pieces = 1
    start_s: Instant = 0.0
    end_s: Duration | None = None

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

    seconds: Duration = 10.0
    seed: Seed = 0
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
        self._check_names(names)
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
            if min(stream.end_s or self.seconds, self.seconds) <= stream.start_s:
                raise ValueError("a stream ends before it starts")
        self._check_size()
        return self

    def _check_names(self, names: list[str]) -> None:
        run_times = sum(model.count * model.max_batch for model in self.models)
        if run_times > RUN_TIMES_MAX:
            raise ValueError(
                f"models times rows of their largest batches are {run_times:,}, at "
                f"most {RUN_TIMES_MAX:,}: lower count or max_batch"
            )
        numbered = [name for model in self.models for name in model.names()]
        if any(len(set(some)) < len(some) for some in (names, numbered)):
            raise ValueError("two models have one name")

    def _check_size(self) -> None:
        kinds = sum(
            stream.shapes * model.count
            for stream in self.streams
            for model in self.models
            if self._asks(stream, model)
        )
        if kinds * self.seconds > KIND_SECONDS_MAX:
            raise ValueError(
                f"{kinds:,} kinds of requests (models and shapes of all streams) in "
                f"{self.seconds:g} s are {kinds * self.seconds:,.0f} to be counted, at "
                f"most {KIND_SECONDS_MAX:,}: lower seconds, models or shapes"
            )
        self.check_requests()

    def check_requests(self, *, factor: float = 1.0) -> None:
        """Raises ValueError where so many requests, or so few, arrive that a run tells
        nothing for hours, or ever."""
        expected = self._requests(factor)
        if expected > REQUESTS_MAX:
            raise ValueError(
                f"{expected:.3g} requests would arrive in {self.seconds:g} s, at most "
                f"{REQUESTS_MAX:,} do: lower load, rate or seconds"
            )
        if expected < 1:
            raise ValueError(
                f"{expected:.3g} requests would arrive in {self.seconds:g} s: raise "
                "load, rate or seconds"
            )

    def _requests(self, factor: float) -> float:
        """Expected in a run; of a backlog, what waits and what could be done of it."""
        specs = self.build_models()
        total = 0.0
        for section in self.streams:
            stream = self._stream(section, specs, factor)
            total += stream.rate * (stream.end_s - stream.start_s)
            total += stream.backlog * self.pool.lanes
        return total

    def build_pool(self) -> Pool:
        admission = self.admission and self.policy == "headrace"
        return self.pool.build(admission=admission)

    def build_models(self) -> list[ModelSpec]:
        return [spec for model in self.models for spec in model.build()]

    def sections(self) -> list[str]:
        """The name of its section for each of :meth:`build_models`."""
        return [model.name for model in self.models for _ in model.names()]

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
            limit_us=None if limit_ms is None else _us(limit_ms),
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
        if each["type"] == "extra_forbidden":
            text = "there is no such key"
        elif each["type"] != "value_error" and isinstance(each["input"], Scalar):
            text += f", got {each['input']!r:.40}"
        found.append(f"{place}: {text}" if place else text)
    return "; ".join(found)
