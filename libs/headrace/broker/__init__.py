"""Apache Kafka behind the verbs of :mod:`headrace.broker.interface`."""

from headrace.broker.admin import KafkaAdmin
from headrace.broker.bulk import Answered, BulkExchange, CommittedPositions
from headrace.broker.commit_log import (
    COMMITS_TOPIC,
    GroupCommit,
    commits_partition,
    decode_commit,
)
from headrace.broker.connection import (
    FRAMING_BYTES,
    KafkaConnection,
    checked_servers,
)
from headrace.broker.depth import Depth, group_depth
from headrace.broker.following import InOrder, follow
from headrace.broker.history import Extent, History, records_at, records_since
from headrace.broker.interface import (
    Admin,
    CommitRefused,
    Committed,
    Delivery,
    Headers,
    Leader,
    LeaderListener,
    LogRange,
    NewTopic,
    Producer,
    Reader,
    Record,
    TopicPartition,
)
from headrace.broker.leader import KafkaLeader, LeaderSettings
from headrace.broker.producer import Compression, KafkaProducer, ProducerSettings
from headrace.broker.reach import reach
from headrace.broker.reader import KafkaReader, ReaderSettings
from headrace.broker.spans import Span, read_kept, read_places, read_spans, spans_since
from headrace.broker.tail import tail
from headrace.broker.threads import (
    LOOK_S,
    READ_WAIT_S,
    LoopHandover,
    ProducerThread,
    ReaderThread,
    TableReader,
)

__all__ = [
    "COMMITS_TOPIC",
    "FRAMING_BYTES",
    "LOOK_S",
    "READ_WAIT_S",
    "Admin",
    "Answered",
    "BulkExchange",
    "CommitRefused",
    "Committed",
    "CommittedPositions",
    "Compression",
    "Delivery",
    "Depth",
    "Extent",
    "GroupCommit",
    "Headers",
    "History",
    "InOrder",
    "KafkaAdmin",
    "KafkaConnection",
    "KafkaLeader",
    "KafkaProducer",
    "KafkaReader",
    "Leader",
    "LeaderListener",
    "LeaderSettings",
    "LogRange",
    "LoopHandover",
    "NewTopic",
    "Producer",
    "ProducerSettings",
    "ProducerThread",
    "Reader",
    "ReaderSettings",
    "ReaderThread",
    "Record",
    "Span",
    "TableReader",
    "TopicPartition",
    "checked_servers",
    "commits_partition",
    "decode_commit",
    "follow",
    "group_depth",
    "reach",
    "read_kept",
    "read_places",
    "read_spans",
    "records_at",
    "records_since",
    "spans_since",
    "tail",
]
