"""The local Apache Kafka: one KRaft node, with no Java or Maven on the machine.

The JRE and the tool that fetches the jars are Python packages; every jar is checked
against the sums in ``jars.sha256``. Ready means that the broker has answered a
metadata request. All calls block.
"""

from headrace.embedded.broker import EmbeddedKafka, KafkaSettings, RunningKafka
from headrace.embedded.jars import KAFKA_VERSION, cache_folder, fetch_jars, missing_jars
from headrace.embedded.java import find_java
from headrace.embedded.ports import port_error
from headrace.embedded.process import TiedProcess

__all__ = [
    "KAFKA_VERSION",
    "EmbeddedKafka",
    "KafkaSettings",
    "RunningKafka",
    "TiedProcess",
    "cache_folder",
    "fetch_jars",
    "find_java",
    "missing_jars",
    "port_error",
]
