"""Dead letters, listed and put back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from headrace.broker import records_at
from headrace.domain import Reason, Source
from headrace.wire import Record, decode_dead_letter
from services.ctl import deadletters
from services.ctl.deadletters import RedriveRow, redrive_letters
from services.ctl.errors import UsageError
from services.ctl.letters import Fate, Letter, chosen, put_back, read_letters
from services.ctl.payload import payload_of
from tests.audit.cluster import MODEL, TENANT, Cluster
from tests.wire.records import INGRESS, a_new_request, a_value
from tests.wire.test_deadletters import LETTER, as_read

PLACE = "headrace.deadletters.digits/0/5"


def a_letter(
    offset: int = 5,
    *,
    request_id: str = "a" * 32,
    source: Source = LETTER.source,
    redriven: str = "",
    ours: bool = True,
) -> Letter:
    headers, value = INGRESS.encode(a_new_request(id=request_id), 0)
    if not ours:
        headers = [each for each in headers if each[0] != "ce_source"]
    if redriven:
        headers.append(("inf-redriven", redriven.encode()))
    original = Record(*source, 0, None, value, headers)
    letter = msgspec.structs.replace(LETTER, source=source, id=request_id)
    record = as_read(letter, original)
    place = Source(record.topic, 0, offset)
    return Letter(place, 0, record.key, decode_dead_letter(record))


def test_a_request_is_put_back_as_it_was_but_for_its_deadline() -> None:
    letter = a_letter(redriven="headrace.deadletters.digits/0/1")
    before = dict(letter.buried.headers)

    key, headers, value = put_back(letter)

    assert (key, value) == (letter.key, letter.buried.value)
    after = dict(headers)
    assert before.keys() - after.keys() == {"inf-deadline"}
    assert after.pop("inf-redriven") == PLACE.encode()
    assert after.items() <= before.items()
    assert len(headers) == len(dict(headers))


def test_a_letter_is_named_by_its_id_or_its_place() -> None:
    one, other = a_letter(5), a_letter(6, request_id="b" * 32)

    assert chosen([one, other], "a" * 32) == [one]
    assert chosen([one, other], "headrace.deadletters.digits/0/6") == [other]
    assert chosen([one, other], "c" * 32) == []


@pytest.mark.parametrize("ours", [True, False])
def test_of_a_request_that_failed_again_the_last_letter_counts(*, ours: bool) -> None:
    again = Source("headrace.requests.digits", 2, 90)
    first = a_letter(5, ours=ours)
    second = a_letter(6, ours=ours, source=again, redriven=PLACE)

    assert chosen([first, second], "a" * 32) == [second]


def test_requests_by_hand_that_share_an_id_are_not_mixed_up() -> None:
    first = a_letter(5, ours=False)
    second = a_letter(6, ours=False, source=Source("headrace.requests.digits", 2, 90))

    assert chosen([first, second], "a" * 32) == [first, second]


def test_a_payload_is_shown_in_few_words() -> None:
    value = a_value(bytes(64), shape=(4, 4), client_id="mine").SerializeToString()

    payload = payload_of(value)

    assert payload is not None
    assert (payload.client_id, payload.size_bytes) == ("mine", len(value))
    (shown,) = payload.inputs
    assert (shown.name, shown.datatype, shown.shape) == ("x", "FP32", (4, 4))
    assert shown.first == "[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0, ...]"


@pytest.mark.parametrize(
    ("datatype", "raw", "first"),
    [
        ("FP32", b"\x00\x00\x80\x3f\x00", "[1.0, ...]"),
        ("BYTES", b"\x02\x00\x00\x00hi", '["hi"]'),
        ("BYTES", b"\x01\x00\x00\x00\xff", "01 00 00 00 ff"),
        ("BF16", b"\x80\x3f", "80 3f"),
        ("FP32", b"", "not in raw form here"),
    ],
)
def test_a_strange_payload_is_shown_all_the_same(
    datatype: str, raw: bytes, first: str
) -> None:
    value = a_value(raw, datatype=datatype).SerializeToString()

    payload = payload_of(value)

    assert payload is not None
    assert payload.inputs[0].first == first


def test_a_value_that_is_no_request_is_shown_as_bytes() -> None:
    payload = payload_of(b"\xff\xfe")

    assert payload is not None
    assert (payload.inputs, payload.begins) == ([], "ff fe")
    assert payload_of(None) is None


@pytest.fixture
def cluster(
    kafka: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    cluster = Cluster(kafka, prefix)
    monkeypatch.setenv("HEADRACE_BUS__PREFIX", cluster.topics.prefix)
    yield cluster
    cluster.close()


def redriven(cluster: Cluster, request_id: str, *, force: bool = False) -> RedriveRow:
    letters = list(read_letters(cluster.connection, cluster.topics, [MODEL], 0))
    (row,) = redrive_letters(
        cluster.connection, cluster.topics, chosen(letters, request_id), force=force
    )
    return row


def sent(cluster: Cluster, row: RedriveRow) -> Record:
    assert row.fate == Fate.SENT
    topic, partition, offset = row.place.rsplit("/", 2)
    place = (topic, int(partition), int(offset))
    return records_at(cluster.connection, [place])[place]


@pytest.mark.kafka
def test_a_request_is_put_back_once_in_its_own_partition(cluster: Cluster) -> None:
    source = cluster.ask("one")
    cluster.bury("one", source, whole=True)

    record = sent(cluster, redriven(cluster, "one"))

    assert (record.topic, record.partition) == (source.topic, source.partition)
    assert dict(record.headers)["ce_id"] == b"one"
    again = redriven(cluster, "one")
    place = f"{record.topic}/{record.partition}/{record.offset}"
    assert (again.fate, again.place) == (Fate.REDRIVEN, place)
    forced = sent(cluster, redriven(cluster, "one", force=True))
    assert forced.offset > record.offset


@pytest.mark.kafka
def test_a_request_that_failed_again_may_be_put_back_again(cluster: Cluster) -> None:
    cluster.bury("one", cluster.ask("one"), whole=True)
    record = sent(cluster, redriven(cluster, "one"))
    second = Source(record.topic, record.partition, record.offset)
    letter = cluster.bury("one", second, whole=True)

    row = redriven(cluster, "one")

    assert row.letter == "/".join(map(str, letter))
    names = [name for name, _ in sent(cluster, row).headers]
    assert names.count("inf-redriven") == 1


@pytest.mark.kafka
def test_a_request_that_was_answered_stays_where_it_is(cluster: Cluster) -> None:
    cluster.bury("online", cluster.ask("online"), whole=True)
    cluster.refuse("online", Source("", 0, 0))
    item = cluster.ask("item", reply_to=cluster.job)
    cluster.bury("item", item, whole=True)
    assert redriven(cluster, "online", force=True).fate == Fate.SENT

    cluster.answer("online")
    cluster.result("item", item)

    for request_id, topic in (
        ("online", cluster.topics.replies),
        ("item", cluster.job.topic),
    ):
        row = redriven(cluster, request_id)
        assert row.fate == Fate.ANSWERED
        assert row.place.startswith(f"{topic}/")


@pytest.mark.kafka
def test_the_success_of_another_is_no_obstacle(cluster: Cluster) -> None:
    item = cluster.ask("item", reply_to=cluster.job)
    cluster.bury("item", item, whole=True)
    cluster.answer("item")
    cluster.result("other", Source(item.topic, item.partition, item.offset + 1))

    assert redriven(cluster, "item").fate == Fate.SENT


@pytest.mark.kafka
def test_what_the_log_has_lost_cannot_be_put_back(cluster: Cluster) -> None:
    cluster.bury("gone", Source(cluster.topics.requests(MODEL), 2, 0))

    assert redriven(cluster, "gone", force=True).fate == Fate.EMPTY


@pytest.mark.kafka
def test_letters_are_listed_by_reason_and_time(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADRACE_BUS__PREFIX", cluster.topics.prefix)
    servers = cluster.bus.bootstrap_servers
    for each in ("one", "two", "three"):
        cluster.bury(each, cluster.ask(each), whole=True)

    def listed(**options: object) -> list[str]:
        status = deadletters.list_letters(bootstrap=servers, output="json", **options)
        assert status == 0
        rows = json.loads(capsys.readouterr().out)
        assert all(row["tenant"] == TENANT for row in rows)
        return [row["id"] for row in rows]

    assert listed() == ["one", "two", "three"]
    assert listed(last=2) == ["two", "three"]
    assert listed(reasons=[Reason.EXPIRED]) == []
    assert listed(reasons=[Reason.POISON, Reason.EXPIRED], models=[MODEL]) != []
    with pytest.raises(UsageError, match="There is no model 'nope' at"):
        listed(models=["nope"])
    assert listed(from_="2099-01-01") == []
    assert deadletters.show("two", bootstrap=servers) == 0
    assert "header ce_id" in capsys.readouterr().out
    assert deadletters.show("nobody", bootstrap=servers) == 1


@pytest.mark.kafka
def test_the_command_tells_of_each_request(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = cluster.bus.bootstrap_servers
    cluster.bury("one", cluster.ask("one"), whole=True)
    for _ in range(2):
        cluster.bury("1", cluster.ask("1", source="by hand"), whole=True)

    assert deadletters.redrive("one", "one", bootstrap=servers) == 0
    assert "one: put back at" in capsys.readouterr().out
    assert deadletters.redrive("one", bootstrap=servers) == 0
    assert "one: not sent, since it was put back at" in capsys.readouterr().out
    assert deadletters.redrive("nobody", bootstrap=servers) == 1
    assert "there is no such dead letter" in capsys.readouterr().out
    with pytest.raises(UsageError, match="1 is the id of 2 requests"):
        deadletters.redrive("1", bootstrap=servers)
    with pytest.raises(UsageError, match="name at least one"):
        deadletters.redrive(bootstrap=servers)
