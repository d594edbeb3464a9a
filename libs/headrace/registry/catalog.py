"""The model versions of a pool, folded from what its worker slots announce.

A version is served by the slots that announced it with the same files; slots with
other files under the same number are ignored and reported. A version whose slots all
load again (a worker restarts) is not forgotten: it takes no new requests, but what is
queued for it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.domain import ModelState, Reason, ServedVersion
from headrace.errors import RequestError
from headrace.wire import Announcement

__all__ = ["Catalog", "VersionInfo"]

RUNS_MAX = 64
"""Runs of one compatibility key that a version tells of: enough to know its times."""

_BEST_FIRST = (
    ModelState.READY,
    ModelState.LOADING,
    ModelState.FAILING,
    ModelState.UNLOADING,
    ModelState.REFUSED,
)


class VersionInfo(msgspec.Struct, frozen=True):
    """A version as an operator or a client's index sees it."""

    model: str
    version: str
    state: ModelState
    """The best of its slots'."""

    reason: str
    """Why it is not ready."""

    warnings: tuple[str, ...]
    slots: dict[int, Announcement]
    served: ServedVersion | None


class Catalog:
    """All versions of all models. Versions order by number, not by letter."""

    def __init__(self) -> None:
        self._models: dict[str, dict[str, _Version]] = {}
        self._retired: set[tuple[str, str]] = set()

    def apply(self, announcement: Announcement) -> bool:
        """Take in what a slot says; whether anything served has changed."""
        self._retired.discard((announcement.model, announcement.version))
        versions = self._models.setdefault(announcement.model, {})
        version = versions.setdefault(announcement.version, _Version())
        version.slots[announcement.slot] = announcement
        return version.fold()

    def remove(self, model: str, version: str, slot: int) -> bool:
        """A tombstone: the version left the slot for good; as :meth:`apply`."""
        versions = self._models.get(model, {})
        known = versions.get(version)
        if known is None or known.slots.pop(slot, None) is None:
            return False
        changed = known.fold()
        if not known.slots:
            self._retired.add((model, version))
            del versions[version]
            if not versions:
                del self._models[model]
        return changed

    def resolve(self, model: str, version: str = "") -> ServedVersion:
        """What a new request runs on: the version that it names, else the highest
        that is ready.

        Raises :class:`headrace.errors.RequestError` with reason ``model_unknown``
        (nor will it come up by itself), ``model_loading`` or ``model_unavailable``.
        """
        versions = self._models.get(model)
        if versions is None:
            hint = "; names are taken as they stand, undecoded" if "%" in model else ""
            raise _refusal(Reason.MODEL_UNKNOWN, f"unknown model {model[:120]!r}{hint}")
        if version:
            known = versions.get(version)
            if known is None:
                raise _refusal(
                    Reason.MODEL_UNKNOWN,
                    f"model {model!r} has no version {version[:40]!r}, only "
                    f"{_listed(versions)}",
                )
            if known.served and known.served.accepts:
                return known.served
            raise self._not_ready(model, [version])
        for number in sorted(versions, key=_number, reverse=True):
            served = versions[number].served
            if served and served.accepts:
                return served
        raise self._not_ready(model, sorted(versions, key=_number))

    def lookup(self, model: str, version: str) -> ServedVersion:
        """What a request that is already in the log runs on: also a version that
        takes no new ones. Without a version as :meth:`resolve`.

        Raises :class:`headrace.errors.RequestError`; ``model_unknown`` for a version
        that was never announced here, which its sender may have heard of first.
        """
        known = self._models.get(model, {}).get(version)
        if known and known.served:
            return known.served
        if (model, version) in self._retired:
            raise _refusal(
                Reason.MODEL_UNAVAILABLE,
                f"model {model!r} version {version!r} is served no longer",
            )
        return self.resolve(model, version)

    def rows_max(self, model: str, version: str) -> int:
        """Most rows of a batch of it; 0: nobody serves it."""
        known = self._models.get(model, {}).get(version)
        return known.served.max_batch if known and known.served else 0

    def served(self) -> tuple[ServedVersion, ...]:
        """Everything that queued requests may run on, by model and number."""
        return tuple(info.served for info in self.versions() if info.served)

    def versions(self) -> list[VersionInfo]:
        """Every announced version, by model and number."""
        return [
            self._models[model][version].info(model, version)
            for model in sorted(self._models)
            for version in sorted(self._models[model], key=_number)
        ]

    def versions_of(self, model: str) -> list[VersionInfo]:
        """Empty: unknown model."""
        return [info for info in self.versions() if info.model == model]

    def _not_ready(self, model: str, versions: Sequence[str]) -> RequestError:
        infos = [self._models[model][each].info(model, each) for each in versions]
        in_state = {info.state for info in infos}
        states = "; ".join(
            f"version {info.version} is {info.state}"
            + (f" ({info.reason})" if info.reason else "")
            for info in infos
        )
        if in_state == {ModelState.REFUSED}:
            # No waiting helps: somebody has to change the files.
            return _refusal(
                Reason.MODEL_UNKNOWN, f"model {model!r} is not served: {states}"
            )
        reason = Reason.MODEL_UNAVAILABLE
        if ModelState.LOADING in in_state:
            reason = Reason.MODEL_LOADING
        return _refusal(reason, f"model {model!r} is not ready: {states}")


class _Version:
    """One version's announcements, the latest of each slot."""

    def __init__(self) -> None:
        self.slots: dict[int, Announcement] = {}
        self.served: ServedVersion | None = None

    def fold(self) -> bool:
        """Work out anew what is served; whether it has changed."""
        before = self.served
        sha256 = self._sha256()
        same = self._described(sha256) if sha256 is not None else []
        running = [each for each in same if each.state is not ModelState.LOADING]
        slots = self.slots.values()
        # One that fails is tried again, so what is queued waits for it, too.
        loading = _slots(slots, ModelState.LOADING) | _slots(slots, ModelState.FAILING)
        if same:
            self.served = msgspec.structs.replace(
                _served(running or same, running), loading_slots=loading
            )
        elif before and sha256 is not None:
            nothing: frozenset[int] = frozenset()
            self.served = msgspec.structs.replace(
                before,
                ready_slots=nothing,
                unloading_slots=nothing,
                loading_slots=loading,
            )
        else:
            self.served = None
        return self.served != before

    def info(self, model: str, version: str) -> VersionInfo:
        by_state = {each.state: each for each in reversed(self.slots.values())}
        state = next(state for state in _BEST_FIRST if state in by_state)
        warnings = dict.fromkeys(
            warning for each in self.slots.values() for warning in each.warnings
        )
        return VersionInfo(
            model=model,
            version=version,
            state=state,
            reason=by_state[state].reason,
            warnings=(*warnings, *self._ignored()),
            slots=dict(self.slots),
            served=self.served,
        )

    def _sha256(self) -> str | None:
        """Whose files count: those served so far while any slot has them, else those
        of the first slot that is furthest on."""
        alive = [
            each for each in self.slots.values() if each.state is not ModelState.REFUSED
        ]
        if self.served and any(
            each.sha256 == self.served.sha256
            or (each.state is ModelState.LOADING and not each.sha256)
            for each in alive
        ):
            return self.served.sha256
        for state in _BEST_FIRST[:-1]:
            for each in alive:
                if each.state is state and each.signature:
                    return each.sha256
        return None

    def _described(self, sha256: str) -> list[Announcement]:
        return [
            each
            for each in self.slots.values()
            if each.sha256 == sha256
            and each.signature
            and each.state is not ModelState.REFUSED
        ]

    def _ignored(self) -> list[str]:
        return [
            f"slot {slot} has other files (sha256 {each.sha256[:12]}…) and is ignored"
            for slot, each in sorted(self.slots.items())
            if self.served
            and each.state is ModelState.READY
            and each.sha256 != self.served.sha256
        ]


def _served(
    described: Sequence[Announcement], running: Sequence[Announcement]
) -> ServedVersion:
    """Of several slots the tightest limit and the slowest run count."""
    first = described[0]
    assert first.signature is not None
    run_us: dict[int, int] = {}
    for each in described:
        for rows, time_us in each.run_us.items():
            run_us[rows] = max(time_us, run_us.get(rows, 0))
    objective_ms = first.latency_objective_ms
    return ServedVersion(
        model=first.model,
        version=first.version,
        signature=first.signature,
        sha256=first.sha256,
        max_batch=min(each.max_batch for each in described),
        batch_axes=first.batch_axes,
        padding=first.padding,
        latency_objective_us=None
        if objective_ms is None
        else round(objective_ms * 1000),
        run_us=run_us,
        run_length=max(each.run_length for each in described),
        recent_runs=_recent_runs(running),
        rows_fit={each.slot: each.rows_fit for each in running if each.rows_fit},
        ready_slots=_slots(running, ModelState.READY),
        unloading_slots=_slots(running, ModelState.UNLOADING),
        platform=first.platform,
        backend=first.backend,
    )


def _recent_runs(
    running: Iterable[Announcement],
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Of all slots, by number, up to :data:`RUNS_MAX` for each key."""
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for each in sorted(running, key=lambda one: one.slot):
        for shape, runs in each.recent_runs.items():
            found[shape] = (found.get(shape, ()) + runs)[:RUNS_MAX]
    return found


def _slots(announced: Iterable[Announcement], state: ModelState) -> frozenset[int]:
    return frozenset(each.slot for each in announced if each.state is state)


def _number(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdecimal() else (-1, version)


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions, key=_number))


def _refusal(reason: Reason, text: str) -> RequestError:
    return RequestError(text, reason=reason)
