"""``keyshared demo load``: the producer of the flights to any cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.errors import BrokerUnavailableError, ConfigError
from kafka_keyshared.lab.demo.data import records
from kafka_keyshared.testing.clusters.cluster import has_leaders
from kafka_keyshared.testing.clusters.producer import MeteredProducer

ANSWER_TIMEOUT = 8.0
FLUSH_TIMEOUT = 120.0
NO_LIMIT = 1 << 50


def load(
    conf: dict[str, Any], topic: str, partitions: int, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Create the topic if it is missing and write 362,891 records to it.

    ``conf`` is the client's configuration, security included. The topic is created with
    ``partitions`` and the cluster's own replication. Raises
    :class:`~kafka_keyshared.errors.KeySharedError` when no broker answers or a record is refused
    (earlier records stay). Raises :class:`ConfigError` when the topic is refused.
    """
    if partitions < 1:
        raise ConfigError(f"--partitions {partitions}: give at least 1")
    created = _create_when_missing(conf, topic, partitions)
    written = 0
    with MeteredProducer({"linger.ms": 20, **conf}, limit_bytes=NO_LIMIT) as producer:
        for record in records():
            producer.produce(topic, record.key, record.value)
            written += 1
            if written % 10_000 == 0:
                progress(written)
        producer.flush(FLUSH_TIMEOUT)
    progress(written)
    return {"topic": topic, "records": written, "created": created}


def _create_when_missing(conf: dict[str, Any], topic: str, partitions: int) -> bool:
    # With the user's configuration, so that it works wherever the producer will. Quiet, because the
    # client would log a warning for each producer-only setting.
    admin = AdminClient({**conf, "log_level": 2})
    try:
        if topic in admin.list_topics(timeout=ANSWER_TIMEOUT).topics:
            return False
        asked = [NewTopic(topic, num_partitions=partitions, replication_factor=-1)]
        made = admin.create_topics(asked, operation_timeout=ANSWER_TIMEOUT)
        made[topic].result(ANSWER_TIMEOUT + 1)
        _await_leaders(admin, topic, partitions)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        kind = BrokerUnavailableError if reason.code() < 0 else ConfigError
        raise kind(
            f"topic {topic!r} could not be created at {conf['bootstrap.servers']}: {reason.str()}; "
            "create it yourself, or mend its name or the access rights"
        ) from error
    except TimeoutError as error:
        raise _late(conf, topic) from error
    return True


def _await_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    give_up = time.monotonic() + ANSWER_TIMEOUT
    while time.monotonic() < give_up:
        found = admin.list_topics(timeout=ANSWER_TIMEOUT).topics.get(topic)
        if found is not None and len(found.partitions) == partitions and has_leaders(found):
            return
        time.sleep(0.05)
    raise TimeoutError


def _late(conf: dict[str, Any], topic: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"topic {topic!r} was not ready at {conf['bootstrap.servers']} within "
        f"{ANSWER_TIMEOUT:g} s; see whether the cluster is overloaded, then try again"
    )
