"""Loops that end at the end of their partitions, under ``split``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer as Plain
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import Consumer, split
from kafka_keyshared.app.split import SplitMember
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]

PARTITIONS = 3


def test_a_loop_that_ends_at_the_end_of_its_partitions_has_had_every_record(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, PARTITIONS)
    write(embedded_cluster, topic, [(b"k%d" % (number % 30), b"") for number in range(300)])
    conf = client_conf(embedded_cluster, group_name()) | {"enable.partition.eof": True}
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    handled: Counter[tuple[int, int]] = Counter()
    unhandled_at_an_end: list[int] = []
    lock = threading.Lock()

    def loop(member: SplitMember) -> None:
        ended: dict[int, int] = {}
        while len(ended) < PARTITIONS:
            message = member.poll(1.0)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            offset = message.offset()
            assert partition is not None
            assert offset is not None
            if error is None:
                with lock:
                    handled[partition, offset] += 1
                member.commit(message)
                continue
            assert error.code() == KafkaError._PARTITION_EOF
            ended[partition] = offset
            with lock:
                unhandled_at_an_end.append(
                    sum((partition, before) not in handled for before in range(offset))
                )

    assert split(consumer, 4).run(loop) == 0
    assert sorted(handled.values()) == [1] * 300
    assert len(unhandled_at_an_end) == 4 * PARTITIONS, "each member hears of each end"
    assert sum(unhandled_at_an_end) == 0, "an end was told before its records were handled"
    plain = Plain(client_conf(embedded_cluster, conf["group.id"]))
    found = plain.committed([ClientPartition(topic, each) for each in range(PARTITIONS)], 30)
    plain.close()
    assert sum(each.offset for each in found) == 300
    consumer.close()
