"""What the catalog says of announced versions."""

from __future__ import annotations

import msgspec
import pytest

from headrace.domain import Datatype, ModelState, Reason, Signature, TensorSpec
from headrace.errors import RequestError
from headrace.registry import Catalog
from headrace.wire import Announcement

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 4)),),
    (TensorSpec("y", Datatype.FP32, (-1, 4)),),
)


def an_announcement(
    version: str = "1",
    slot: int = 0,
    state: ModelState = ModelState.READY,
    *,
    sha256: str = "aa",
    signature: Signature | None = SIGNATURE,
    reason: str = "",
    warnings: tuple[str, ...] = (),
    max_batch: int = 32,
    rows_fit: int | None = None,
    run_us: dict[int, int] | None = None,
    latency_objective_ms: float | None = None,
) -> Announcement:
    return Announcement(
        model="digits",
        version=version,
        slot=slot,
        state=state,
        reason=reason,
        warnings=warnings,
        sha256=sha256,
        signature=signature,
        max_batch=max_batch,
        rows_fit=rows_fit,
        batch_axes={"x": 0, "y": 0},
        run_us=run_us or {},
        latency_objective_ms=latency_objective_ms,
    )


def refused(catalog: Catalog, version: str = "") -> RequestError:
    with pytest.raises(RequestError) as caught:
        catalog.resolve("digits", version)
    return caught.value


def a_catalog(*announcements: Announcement) -> Catalog:
    catalog = Catalog()
    for announcement in announcements:
        catalog.apply(announcement)
    return catalog


def test_an_unversioned_request_gets_the_highest_number() -> None:
    catalog = a_catalog(
        an_announcement("9"), an_announcement("10"), an_announcement("2")
    )
    assert catalog.resolve("digits").version == "10"
    assert [info.version for info in catalog.versions()] == ["2", "9", "10"]


def test_an_unversioned_request_gets_the_next_version_while_the_highest_unloads() -> (
    None
):
    catalog = a_catalog(an_announcement("1"), an_announcement("2"))
    catalog.apply(an_announcement("2", state=ModelState.UNLOADING))
    assert catalog.resolve("digits").version == "1"


def test_a_named_version_is_taken_though_a_higher_one_is_ready() -> None:
    catalog = a_catalog(an_announcement("1"), an_announcement("2"))
    assert catalog.resolve("digits", "1").version == "1"


def test_an_unknown_model_is_named() -> None:
    error = refused(Catalog())
    assert error.reason == Reason.MODEL_UNKNOWN
    assert str(error) == "unknown model 'digits'"
    with pytest.raises(RequestError, match="names are taken as they stand"):
        Catalog().resolve("digit%73")


def test_an_unknown_version_is_told_the_known_ones() -> None:
    error = refused(a_catalog(an_announcement("2"), an_announcement("10")), "3")
    assert error.reason == Reason.MODEL_UNKNOWN
    assert str(error) == "model 'digits' has no version '3', only 2, 10"


def test_a_loading_model_asks_to_come_again() -> None:
    loading = an_announcement(state=ModelState.LOADING, signature=None)
    error = refused(a_catalog(loading))
    assert error.reason == Reason.MODEL_LOADING
    assert str(error) == "model 'digits' is not ready: version 1 is loading"


def test_a_refused_version_says_why() -> None:
    bad = an_announcement(
        state=ModelState.REFUSED, signature=None, reason="opset 99 is not known"
    )
    error = refused(a_catalog(bad), "1")
    assert error.reason == Reason.MODEL_UNKNOWN
    assert str(error) == (
        "model 'digits' is not served: version 1 is refused (opset 99 is not known)"
    )


def test_while_one_version_may_come_up_the_others_being_refused_is_no_end() -> None:
    bad = an_announcement(
        "2", state=ModelState.REFUSED, signature=None, reason="opset 99 is not known"
    )
    loading = an_announcement("1", state=ModelState.LOADING, signature=None)
    assert refused(a_catalog(bad, loading)).reason == Reason.MODEL_LOADING
    leaving = an_announcement("1", state=ModelState.UNLOADING)
    assert refused(a_catalog(bad, leaving)).reason == Reason.MODEL_UNAVAILABLE


def test_a_refused_version_does_not_hide_a_ready_one() -> None:
    catalog = a_catalog(
        an_announcement("1"),
        an_announcement("2", state=ModelState.REFUSED, signature=None, reason="no"),
    )
    assert catalog.resolve("digits").version == "1"


def test_slots_of_equal_files_serve_together_by_the_tightest_limits() -> None:
    catalog = a_catalog(
        an_announcement(slot=0, max_batch=32, run_us={1: 100, 32: 900}),
        an_announcement(slot=3, max_batch=8, run_us={1: 150, 8: 300}),
    )
    served = catalog.resolve("digits")
    assert served.ready_slots == {0, 3}
    assert served.max_batch == 8
    assert served.run_us == {1: 150, 8: 300, 32: 900}


def test_a_slot_with_other_files_is_ignored_with_a_warning() -> None:
    catalog = a_catalog(
        an_announcement(slot=5, sha256="aaaa"), an_announcement(slot=0, sha256="bbbb")
    )
    assert catalog.resolve("digits").ready_slots == {5}
    (info,) = catalog.versions()
    assert info.warnings == ("slot 0 has other files (sha256 bbbb…) and is ignored",)


def test_other_files_take_over_when_no_slot_has_the_first_ones() -> None:
    catalog = a_catalog(
        an_announcement(slot=0, sha256="aa"), an_announcement(slot=1, sha256="bb")
    )
    assert catalog.remove("digits", "1", 0)
    assert catalog.resolve("digits").sha256 == "bb"
    assert catalog.resolve("digits").ready_slots == {1}


@pytest.mark.parametrize("sha256", ["aa", ""])
def test_a_restarting_slot_keeps_what_is_queued_and_takes_nothing_new(
    sha256: str,
) -> None:
    catalog = a_catalog(an_announcement())
    restarting = an_announcement(
        state=ModelState.LOADING, sha256=sha256, signature=None
    )
    assert catalog.apply(restarting)
    assert catalog.lookup("digits", "1").signature == SIGNATURE
    assert not catalog.lookup("digits", "1").ready_slots
    assert refused(catalog, "1").reason == Reason.MODEL_LOADING
    assert [each.version for each in catalog.served()] == ["1"]


def test_a_former_that_starts_late_knows_a_loading_version_by_its_signature() -> None:
    catalog = a_catalog(an_announcement(state=ModelState.LOADING))
    assert catalog.lookup("digits", "1").max_batch == 32
    assert refused(catalog).reason == Reason.MODEL_LOADING


def test_loading_other_files_ends_the_version_for_those_queued() -> None:
    catalog = a_catalog(an_announcement(sha256="aa"))
    catalog.apply(
        an_announcement(state=ModelState.LOADING, sha256="bb", signature=None)
    )
    assert catalog.served() == ()


def test_a_slot_that_fails_is_not_asked_and_what_is_queued_waits_for_it() -> None:
    failing = an_announcement(state=ModelState.FAILING, reason="5 runs failed")
    catalog = a_catalog(an_announcement(), an_announcement(slot=1))

    assert catalog.apply(failing)
    served = catalog.resolve("digits")
    assert (served.ready_slots, served.loading_slots) == ({1}, {0})

    catalog.remove("digits", "1", 1)
    error = refused(catalog)
    assert error.reason == Reason.MODEL_UNAVAILABLE
    assert "version 1 is failing (5 runs failed)" in str(error)
    assert not catalog.lookup("digits", "1").is_gone


def test_the_memory_of_each_slot_is_known() -> None:
    catalog = a_catalog(an_announcement(rows_fit=8), an_announcement(slot=1))

    served = catalog.resolve("digits")

    assert (served.max_batch, served.rows_fit) == (32, {0: 8})


def test_an_unloading_version_is_for_queued_requests_alone() -> None:
    catalog = a_catalog(an_announcement(state=ModelState.UNLOADING))
    assert catalog.lookup("digits", "1").unloading_slots == {0}
    error = refused(catalog, "1")
    assert error.reason == Reason.MODEL_UNAVAILABLE


def test_a_retired_version_is_gone_and_a_never_heard_one_unknown() -> None:
    catalog = a_catalog(an_announcement("1"), an_announcement("2"))
    assert catalog.remove("digits", "1", 0)
    with pytest.raises(RequestError) as gone:
        catalog.lookup("digits", "1")
    with pytest.raises(RequestError) as unknown:
        catalog.lookup("digits", "7")
    assert gone.value.reason == Reason.MODEL_UNAVAILABLE
    assert unknown.value.reason == Reason.MODEL_UNKNOWN


def test_a_retired_version_that_comes_back_is_loading() -> None:
    catalog = a_catalog(an_announcement("1"), an_announcement("2"))
    catalog.remove("digits", "1", 0)
    catalog.apply(an_announcement("1", state=ModelState.LOADING, signature=None))
    with pytest.raises(RequestError) as caught:
        catalog.lookup("digits", "1")
    assert caught.value.reason == Reason.MODEL_LOADING


def test_a_model_without_versions_is_unknown_again() -> None:
    catalog = a_catalog(an_announcement())
    catalog.remove("digits", "1", 0)
    assert refused(catalog).reason == Reason.MODEL_UNKNOWN
    assert catalog.versions() == []


def test_repeating_an_announcement_changes_nothing() -> None:
    catalog = a_catalog(an_announcement(latency_objective_ms=2.5))
    assert not catalog.apply(an_announcement(latency_objective_ms=2.5))
    assert not catalog.remove("digits", "1", 9)
    assert not catalog.remove("other", "1", 0)
    assert catalog.resolve("digits").latency_objective_us == 2500


def test_the_state_of_a_version_is_its_best_slots() -> None:
    catalog = a_catalog(
        an_announcement(slot=0, state=ModelState.REFUSED, reason="out of memory"),
        an_announcement(slot=1, warnings=("rows differ in a batch",)),
    )
    (info,) = catalog.versions_of("digits")
    assert info.state is ModelState.READY
    assert info.reason == ""
    assert info.warnings == ("rows differ in a batch",)
    assert info.slots[0].reason == "out of memory"
    assert catalog.versions_of("other") == []


def test_what_runs_a_version_is_known_of_it() -> None:
    said = msgspec.structs.replace(
        an_announcement("1"), platform="headrace_simulated", backend="simulated"
    )

    served = a_catalog(said).resolve("digits")

    assert (served.platform, served.backend) == ("headrace_simulated", "simulated")


def test_a_folder_refused_for_its_name_is_listed_and_hides_no_other() -> None:
    strange = an_announcement("v2", state=ModelState.REFUSED, reason="no number")
    catalog = a_catalog(strange, an_announcement("1"))

    assert [info.version for info in catalog.versions()] == ["v2", "1"]
    assert catalog.resolve("digits").version == "1"
    assert "no number" in str(refused(catalog, "v2"))


def test_what_the_slots_runs_took_is_known_by_shape_and_bounded() -> None:
    def said(slot: int, **runs: tuple[tuple[int, int], ...]) -> Announcement:
        return msgspec.structs.replace(an_announcement(slot=slot), recent_runs=runs)

    catalog = a_catalog(
        said(1, a=((4, 50),) * 60), said(0, a=((4, 40),) * 60, b=((1, 7),))
    )

    runs = catalog.resolve("digits").recent_runs
    assert runs == {"a": ((4, 40),) * 60 + ((4, 50),) * 4, "b": ((1, 7),)}
