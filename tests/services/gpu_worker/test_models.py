"""A worker and its model folder: what it announces, and what it serves meanwhile."""

from __future__ import annotations

import os
import shutil
import signal

import numpy as np
import pytest

from headrace.broker import KafkaAdmin
from headrace.domain import MemberStatus, ModelState, Reason, ServedVersion
from tests.freezing import freeze
from tests.models import graphs, zoo
from tests.models.folders import put_simulated, put_version
from tests.services.gpu_worker.pool import Pool

pytestmark = pytest.mark.kafka


def added(pool: Pool, served: ServedVersion) -> int:
    """What a version of ``addsub`` makes of 1 + 1."""
    ones = np.ones((1, 16), np.int32).tobytes()
    request = pool.request(served, [((1, 16), ones)] * 2)
    before = len(pool.answers())
    done = pool.done(pool.send(served, [request]))
    assert [member.status for member in done.members] == [MemberStatus.OK]
    answer = pool.answers()[before]
    return int(np.frombuffer(answer.outputs[0].data, np.int32)[0])


def test_a_version_is_announced_with_all_that_others_need(pool: Pool) -> None:
    put_version(
        pool.models,
        "lookup",
        "1",
        graphs.lookup(),
        "max_batch = 8\nlatency_objective_ms = 50",
    )
    pool.start()

    said = pool.wait_state(ModelState.READY, "lookup")

    assert [each.state for each in pool.announced("lookup")] == [
        ModelState.LOADING,
        ModelState.READY,
    ]
    assert (said.max_batch, said.batch_axes) == (8, {"IDX": 0, "Y": 0})
    assert said.latency_objective_ms == 50
    assert sorted(said.run_us) == [1, 2, 3, 8]
    assert [
        (each.name, each.datatype, each.shape) for each in said.signature.inputs
    ] == [("IDX", "INT64", (-1, 1))]
    assert len(said.sha256) == 64
    assert (said.platform, said.backend) == ("onnx_onnxv1", "onnxruntime")
    admin = KafkaAdmin(pool.bus.connection("test"))
    assert admin.partitions(pool.topics.requests("lookup"), 10) == 4
    assert admin.partitions(pool.topics.dead_letters("lookup"), 10) == 1


SIMULATED = """\
backend = "simulated"
alpha_ms = {alpha_ms}
beta_ms = 1
inputs = [{{ name = "X", datatype = "FP32", shape = [-1] }}]
"""

REFUSED = {
    "bad_ir": (zoo.refused_bad_ir(), "Unsupported model IR version: 99"),
    "bad_opset": (zoo.refused_bad_opset(), "Opset 999 is under development"),
    "unknown_op": (zoo.refused_unknown_op(), "FancyOp(-1) is not a registered"),
    "corrupt": (zoo.refused_corrupt(), "not a readable ONNX file"),
    "empty": (zoo.refused_empty(), "No graph was found"),
    "map_output": (zoo.refused_map_output(), "zipmap=False"),
    "fixed_batch1": (zoo.fixed_batch1(), "max_batch = 1"),
    "axis1_batch": (zoo.axis1_batch(), "batch_axis = {"),
    "ragged_out": (zoo.ragged_out(), "batch_axis = {"),
    "outside": (zoo.external_data("../../../../etc/hosts"), "outside the version"),
}


ODD_MANIFESTS = {
    "endless": (SIMULATED.format(alpha_ms="inf"), "alpha_ms: Input should be a finite"),
    "no_number": (SIMULATED.format(alpha_ms="nan"), "alpha_ms: Input should be a"),
    "digits": (f"max_batch = {'9' * 5000}", "holds a number of too many digits"),
    "nested": (f"a = {'[' * 5000}{']' * 5000}", "nests values too deeply"),
}


def test_no_folder_keeps_the_others_from_being_served(pool: Pool) -> None:
    for name, (toml, _) in ODD_MANIFESTS.items():
        folder = pool.models / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.toml").write_text(toml)
    named = put_version(pool.models, "named", "1", graphs.log())
    (named / os.fsdecode(b"\xff")).touch()
    put_version(pool.models, "spelt", "01", graphs.log())
    put_version(pool.models, "zlast", "1", graphs.log())
    pool.start()

    pool.wait_state(ModelState.READY, "zlast")
    for name, (_, sentence) in ODD_MANIFESTS.items():
        assert sentence in pool.wait_state(ModelState.REFUSED, name).reason
    assert "is not UTF-8" in pool.wait_state(ModelState.REFUSED, "named").reason
    assert "without leading zeros" in pool.worker_log()


def test_what_cannot_be_served_is_refused_with_the_reason(pool: Pool) -> None:
    for name, (model, _) in REFUSED.items():
        put_version(pool.models, name, "1", model)
    put_version(pool.models, "misspelt", "1", graphs.log(), "max_bach = 1")
    linked = put_version(pool.models, "linked", "1", graphs.log())
    (linked / "model.toml").symlink_to("/etc/hostname")
    put_version(pool.models, "good", "1", graphs.log())
    pool.start()

    for name, (_, sentence) in REFUSED.items():
        assert sentence in pool.wait_state(ModelState.REFUSED, name).reason
    misspelt = pool.wait_state(ModelState.REFUSED, "misspelt")
    assert "max_bach: unknown key" in misspelt.reason
    assert "symbolic link" in pool.wait_state(ModelState.REFUSED, "linked").reason
    assert pool.wait_state(ModelState.READY, "good").warnings == ()
    said = b"".join(record.value or b"" for record in pool.control.records)
    assert str(pool.models).encode() not in said


def test_a_refused_folder_is_served_once_it_is_put_right(pool: Pool) -> None:
    folder = put_version(pool.models, "first", "1", zoo.axis1_batch())
    pool.start()
    pool.wait_state(ModelState.REFUSED, "first")

    (folder / "model.toml").write_text("batch_axis = { x = 1 }")

    assert pool.wait_state(ModelState.READY, "first").batch_axes == {"x": 1, "y": 0}


def test_a_second_version_is_served_beside_the_first(pool: Pool) -> None:
    put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start()
    first = pool.served("addsub", "1")

    put_version(pool.models, "addsub", "2", graphs.addsub(offset=100))
    second = pool.served("addsub", "2")

    assert [added(pool, first), added(pool, second)] == [2, 102]


def test_a_version_that_fails_to_load_leaves_the_first_serving(pool: Pool) -> None:
    put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start()
    first = pool.served("addsub", "1")

    put_version(pool.models, "addsub", "2", zoo.refused_corrupt())
    refused = pool.wait_state(ModelState.REFUSED, "addsub", "2")

    assert "not a readable ONNX file" in refused.reason
    assert added(pool, first) == 2
    assert pool.announced("addsub", "1")[-1].state is ModelState.READY


def test_a_removed_version_answers_what_is_queued_and_goes(pool: Pool) -> None:
    folder = put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start(models__unload_idle_s="3")
    served = pool.served("addsub")

    shutil.rmtree(folder)
    said = pool.wait_state(ModelState.UNLOADING, "addsub")
    answered = added(pool, served)
    pool.wait_state(None, "addsub")
    late = pool.done(
        pool.send(served, [pool.request(served, [((1, 16), bytes(64))] * 2)])
    )

    assert said.signature == served.signature
    assert answered == 2
    assert (late.members[0].status, late.members[0].reason) == (
        MemberStatus.RETRY,
        Reason.MODEL_UNAVAILABLE,
    )


def test_a_version_put_back_while_it_unloads_is_ready_again(pool: Pool) -> None:
    folder = put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start(models__unload_idle_s="30")
    pool.served("addsub")

    folder.rename(pool.folder / "aside")
    pool.wait_state(ModelState.UNLOADING, "addsub")
    (pool.folder / "aside").rename(folder)
    pool.wait_state(ModelState.READY, "addsub")

    states = [each.state for each in pool.announced("addsub")]
    assert states == [
        ModelState.LOADING,
        ModelState.READY,
        ModelState.UNLOADING,
        ModelState.READY,
    ]


def test_changed_files_take_over_where_no_other_slot_serves_the_old(
    pool: Pool,
) -> None:
    folder = put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start()
    before = pool.served("addsub")
    assert added(pool, before) == 2

    (folder / "model.onnx").write_bytes(graphs.addsub(offset=7))
    pool.until(lambda: pool.announced("addsub")[-1].sha256 != before.sha256)

    assert pool.announced("addsub")[-1].state is ModelState.READY
    assert added(pool, before) == 9


def test_a_change_that_cannot_be_served_leaves_the_old_files_serving(
    pool: Pool,
) -> None:
    folder = put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start()
    before = pool.served("addsub")

    (folder / "model.onnx").write_bytes(zoo.refused_corrupt())
    said = pool.until(
        lambda: pool.announced("addsub")[-1].warnings and pool.announced("addsub")[-1]
    )

    assert (said.state, said.sha256) == (ModelState.READY, before.sha256)
    assert "the folder has changed and cannot be served" in said.warnings[0]
    assert added(pool, before) == 2


def test_other_files_under_a_number_that_a_living_slot_serves_are_refused(
    pool: Pool,
) -> None:
    put_version(pool.models, "addsub", "1", graphs.addsub())
    first = pool.start(0)
    pool.served("addsub")
    elsewhere = pool.folder / "elsewhere"
    put_version(elsewhere, "addsub", "1", graphs.addsub(offset=100))

    pool.start(1, models__folder=str(elsewhere))
    said = pool.wait_state(ModelState.REFUSED, "addsub", slot=1)
    assert "slot 0 serves other files under this number" in said.reason

    shutil.rmtree(pool.models / "addsub")
    pool.wait_state(None, "addsub", slot=0)
    pool.wait_state(ModelState.READY, "addsub", slot=1)
    assert pool.end(first, signal.SIGTERM) == 0


def test_a_restarted_worker_loads_at_once_what_was_announced(pool: Pool) -> None:
    put_version(pool.models, "addsub", "1", graphs.addsub())
    gone = put_version(pool.models, "gone", "1", graphs.log())
    worker = pool.start()
    pool.served("addsub")
    pool.served("gone")
    worker.kill()
    worker.wait()
    shutil.rmtree(gone)

    # A look at the folder once in ten minutes: what loads, loads without a second.
    pool.start(models__scan_ms="600000", worker__previous_exit="signal:KILL")
    served = pool.served("addsub")

    assert added(pool, served) == 2
    assert pool.wait_state(None, "gone") is None


def test_a_slot_that_never_returns_is_spoken_for_and_one_that_does_speaks_again(
    pool: Pool,
) -> None:
    put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start(0, models__dead_slot_s="1")
    frozen = pool.start(1)
    pool.wait_state(ModelState.READY, "addsub", slot=0)
    pool.wait_state(ModelState.READY, "addsub", slot=1)

    freeze(frozen.pid)
    pool.wait_state(None, "addsub", slot=1)
    assert pool.announced("addsub", slot=0)[-1].state is ModelState.READY

    frozen.send_signal(signal.SIGCONT)
    pool.wait_state(ModelState.READY, "addsub", slot=1)


def test_a_simulated_accelerator_needs_no_file(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1", alpha_ms=20, beta_ms=1, max_batch=4)
    pool.start()
    served = pool.served("sim")
    row = np.array([[1, 2, 3, np.nan]], np.float32).tobytes()

    done = pool.done(pool.send(served, [pool.request(served, [((1, 4), row)])] * 3))

    assert 23_000 <= done.run_us < 5_000_000
    assert [bytes(each.outputs[0].data) for each in pool.answers()] == [row] * 3
    said = pool.announced("sim")[-1]
    assert said.backend == "simulated"
    assert said.run_us == {1: 21_000, 2: 22_000, 3: 23_000, 4: 24_000}


def test_names_that_cannot_be_served_are_refused_and_get_no_topics(pool: Pool) -> None:
    put_version(pool.models, "my.model", "1", graphs.log())
    put_version(pool.models, "stats", "1", graphs.log())
    put_version(pool.models, "log", "1", graphs.log())
    (pool.models / "log" / "latest").mkdir()
    pool.start()
    pool.served("log")

    reasons = [
        pool.wait_state(ModelState.REFUSED, model, version).reason
        for model, version in (("my.model", "1"), ("stats", "1"), ("log", "latest"))
    ]
    assert "model name 'my.model' is not allowed" in reasons[0]
    assert "model name 'stats' is reserved" in reasons[1]
    assert "version name 'latest' of model 'log' is not allowed" in reasons[2]
    topics = KafkaAdmin(pool.bus.connection("test")).topics(10)
    mine = [name for name in topics if name.startswith(pool.topics.requests(""))]
    assert mine == [pool.topics.requests("log")]

    shutil.rmtree(pool.models / "my.model")
    pool.wait_state(None, "my.model")
