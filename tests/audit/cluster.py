"""The topics of a cluster, and histories written into them by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import uuid4

import confluent_kafka
import numpy as np
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from headrace.audit import AuditLimits, AuditRange, Report, audit_log
from headrace.broker import (
    Delivery,
    KafkaAdmin,
    KafkaConnection,
    TopicPartition,
    records_at,
)
from headrace.delivery import CommitMetadata
from headrace.domain import (
    Completion,
    Datatype,
    DeadLetter,
    Done,
    DoneMember,
    MemberStatus,
    ModelState,
    Priority,
    Reason,
    ReplyAddress,
    Source,
    StaleWritten,
    Tensor,
    Terminal,
)
from headrace.lifecycle import BusSettings
from headrace.payloads import PayloadStore
from headrace.wire import (
    PROTOBUF_HEADERS,
    ROWS,
    Announcement,
    Batch,
    BatchedOutput,
    BatchStamp,
    Compatibility,
    Heartbeat,
    NewRequest,
    Outgoing,
    RequestEncoder,
    Role,
    RunFacts,
    ServiceState,
    SourceTable,
    base_topics,
    dead_letter,
    encode_completion,
    encode_json,
    encode_refusals,
    encode_replies,
    model_topics,
    plain_reply,
    results_topic,
)
from headrace.wire.control import announcement_key
from tests.writing import writer_to

MODEL = "m"
TENANT = "acme"
JOB = "scan"
FACTS = RunFacts(worker="0/1", wait_us=1, input_us=2, run_us=3, output_us=4)


def an_output(value: float) -> Tensor:
    return Tensor("y", Datatype.FP32, (1, 1), np.float32([value]).tobytes())


class Cluster:
    """What ingresses, formers, workers and operators write, each by a verb of its
    own; every write is acked when its verb returns."""

    def __init__(self, kafka: str, prefix: str) -> None:
        self.bus = BusSettings(
            bootstrap_servers=kafka, prefix=prefix.rstrip("."), worker_slots=2
        )
        self.topics = self.bus.topics
        self.connection: KafkaConnection = self.bus.connection("test")
        admin = KafkaAdmin(self.connection)
        results = results_topic(self.topics, TENANT, JOB, self.bus)
        wanted = [
            *base_topics(self.topics, self.bus),
            *model_topics(self.topics, MODEL, self.bus),
            *model_topics(self.topics, "other", self.bus),
            results,
        ]
        admin.create_topics(wanted, 30)
        self._producer = writer_to(kafka)
        self._committer = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka, "group.id": self.topics.lane_group}
        )
        self.address = ReplyAddress(self.topics.replies, 0)
        self.job = ReplyAddress(results.name, None)
        self.last_us = 0

    def ask(
        self,
        request_id: str,
        *,
        model: str = MODEL,
        priority: Priority = Priority.STANDARD,
        limit_ms: int | None = 60_000,
        reply_to: ReplyAddress | None = None,
        source: str = "headrace/ingress/0",
    ) -> Source:
        """The record of a request whose time limit begins now."""
        now_us = time.time_ns() // 1000
        encoder = RequestEncoder(source, reply_to or self.address)
        headers, value = encoder.encode(
            NewRequest(
                id=request_id,
                tenant=TENANT,
                model=model,
                version="1",
                priority=priority,
                deadline_us=None if limit_ms is None else now_us + limit_ms * 1000,
                compatibility=Compatibility("x:FP32:1", 1, 0),
                tensors=(an_output(1.0),),
            ),
            now_us,
        )
        partition = self.topics.request_partition(0, priority)
        outgoing = Outgoing(None, headers, value)
        return self.write(self.topics.requests(model), partition, outgoing)

    def answer(
        self,
        *request_ids: str,
        value: float = 1.0,
        partition: int = 0,
        store: PayloadStore | None = None,
    ) -> None:
        """Successes in one record, whose data are there or in ``store``."""
        members = list(range(len(request_ids)))
        piece = bytes(an_output(value).data)
        refs = {}
        if store is not None:
            names = (f"20260101T00/{TENANT}/{uuid4().hex}" for _ in members)
            refs = {n: store.write(name, [piece]) for n, name in enumerate(names)}
            piece = b""
        output = BatchedOutput.of(
            "y", Datatype.FP32, (ROWS, 1), tuple(piece for _ in members)
        )
        body = encode_replies(a_batch(*request_ids), members, [output], FACTS, refs)
        outgoing = Outgoing(None, PROTOBUF_HEADERS, body)
        self.write(self.topics.replies, partition, outgoing)

    def announce(self, *, limit_ms: int) -> None:
        """A worker slot tells of the model and its time limit."""
        announcement = Announcement(
            MODEL, "1", 0, ModelState.READY, latency_objective_ms=limit_ms
        )
        key = announcement_key(MODEL, "1", 0)
        outgoing = Outgoing(key, [], encode_json(announcement))
        self.write(self.topics.control_models, 0, outgoing)

    def beat(self, ingress: int) -> None:
        """A heartbeat of the ingress; its process stays the same."""
        heartbeat = Heartbeat(Role.INGRESS, ingress, "a" * 32, ServiceState.READY)
        outgoing = Outgoing(f"ingress/{ingress}".encode(), [], encode_json(heartbeat))
        self.write(self.topics.status, 0, outgoing)

    def refuse(self, request_id: str, source: Source) -> None:
        terminal = Terminal(
            id=request_id,
            tenant=TENANT,
            model=MODEL,
            version="1",
            reply_to=self.address,
            attempt=1,
            reason=Reason.EXPIRED,
            text="",
            retry_after_us=None,
            client_id="",
            source=source,
        )
        outgoing = Outgoing(None, PROTOBUF_HEADERS, encode_refusals(1, [terminal]))
        self.write(self.topics.replies, 0, outgoing)

    def result(self, request_id: str, source: Source, value: float = 1.0) -> None:
        batch = a_batch(request_id, source=source)
        reply = plain_reply(batch, 0, [an_output(value)])
        self.write(self.job.topic, -1, reply)

    def bury(self, request_id: str, source: Source, *, whole: bool = False) -> Source:
        """``whole``: with the record that lies at ``source``."""
        originals = records_at(self.connection, [source] if whole else [])
        letter = DeadLetter(
            source=source,
            id=request_id,
            tenant=TENANT,
            model=MODEL,
            reason=Reason.POISON,
            text="no",
            attempts=1,
        )
        outgoing = dead_letter(letter, originals.get(source))
        return self.write(self.topics.dead_letters(MODEL), 0, outgoing)

    def done(self, request_id: str, source: Source) -> None:
        member = DoneMember(source, request_id, MemberStatus.OK, "", "")
        self.complete(
            Done(
                batch="ab" * 16,
                slot=0,
                incarnation=1,
                rows=1,
                wait_us=0,
                run_us=1,
                members=(member,),
            )
        )

    def stale(self, source: Source) -> None:
        place = (source.offset, source.offset)
        self.complete(StaleWritten(source.topic, source.partition, (place,)))

    def complete(self, completion: Completion) -> None:
        outgoing = Outgoing(None, PROTOBUF_HEADERS, encode_completion(completion))
        self.write(self.topics.completions, 0, outgoing)

    def commit(self, source: Source, *, epoch: int = 1, above: int = 1) -> None:
        """The lane group commits ``above`` offsets above the record."""
        metadata = CommitMetadata(epoch, 0).encode()
        place = Place(
            source.topic, source.partition, source.offset + above, metadata=metadata
        )
        self._committer.commit(offsets=[place], asynchronous=False)

    def write(self, topic: str, partition: int, outgoing: Outgoing) -> Source:
        ended: list[Delivery] = []
        self._producer.produce(
            topic,
            partition,
            outgoing.value,
            key=outgoing.key,
            headers=list(outgoing.headers),
            on_delivery=ended.append,
        )
        assert self._producer.flush(30) == 0
        (delivery,) = ended
        assert delivery.error is None, delivery
        self.last_us = delivery.timestamp_us
        return Source(topic, delivery.partition, delivery.offset)

    def cut(self, partition: TopicPartition, before: int) -> None:
        client = AdminClient({"bootstrap.servers": self.bus.bootstrap_servers})
        for future in client.delete_records([Place(*partition, before)]).values():
            future.result(20)

    def pass_time(self, ms: int) -> None:
        """Until the log's own clock has gone on so far, and tells so."""
        until_us = self.last_us + ms * 1000
        while self.last_us < until_us:
            time.sleep(0.02)
            self.write(self.topics.status, 0, Outgoing(None, (), b"{}"))

    def audit(
        self,
        from_us: int = 0,
        to_us: int | None = None,
        models: Sequence[str] = (),
        store: PayloadStore | None = None,
        limits: AuditLimits = AuditLimits(),  # noqa: B008 - immutable
    ) -> Report:
        return audit_log(
            self.connection,
            self.topics,
            AuditRange(from_us, to_us, frozenset(models)),
            now_us=time.time_ns() // 1000,
            store=store,
            limits=limits,
        )

    def close(self) -> None:
        self._committer.close()


def a_batch(*request_ids: str, source: Source = Source("", 0, 0)) -> Batch:  # noqa: B008 - immutable
    count = len(request_ids)
    return Batch(
        batch="ab" * 16,
        stamp=BatchStamp(0, 1, "cd" * 16, 1, 1000, None),
        release_reason="full",
        padded_rows=count,
        predicted_us=1,
        model=MODEL,
        version="1",
        tensors=(),
        ids=list(request_ids),
        tenants=[TENANT] * count,
        sources=SourceTable([source] * count),
        addresses=[None] * count,
        rows=[1] * count,
        lengths=[],
        attempts=[1] * count,
        client_ids=[],
    )
