"""A query for the brokers' limit of commit metadata (``offset.metadata.max.bytes``).

The limit is a broker setting, usually the same for all. The query runs once, when the instance
joins the group, and nothing depends on the answer. The user may lack the right to read broker
settings (DESCRIBE_CONFIGS on the cluster), or the query may fail. Then a refused commit shows the
limit.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")

ANSWER_WITHIN = 5.0
"""Seconds after which a request counts as unanswered."""

BROKERS_MOST = 5
"""Maximum number of brokers that are queried."""

SETTING = "offset.metadata.max.bytes"


class KafkaMetadataLimit:
    """One query of some ``brokers``: :class:`~.port.MetadataLimitAsked`."""

    def __init__(self, admin: KeptAdmin, brokers: Collection[int]) -> None:
        self.limit: int | None = None
        numbers = sorted(brokers)[:BROKERS_MOST]
        self._question = (
            admin.ask(SETTING, lambda client: _ask(client, numbers)) if numbers else None
        )

    def answered(self, timeout: float) -> bool:
        """Return whether the query is over, waiting at most ``timeout`` seconds for that.

        ``limit`` is then the lowest limit of the brokers' answers, None without any answer.
        """
        if self._question is None:
            return True  # no broker is known
        told = self._question.answers(timeout)
        if told is None:
            return False
        limits = [limit for each in told.values() if (limit := _limit_in(each)) is not None]
        self.limit = min(limits, default=None)
        return True


def _ask(client: AdminClient, brokers: Collection[int]) -> dict[int, Future[Any]]:
    asked = {}
    for number in brokers:  # each call queries one broker
        broker = ConfigResource(ResourceType.BROKER, str(number))
        asked[number] = client.describe_configs([broker], request_timeout=ANSWER_WITHIN)[broker]
    return asked


def _limit_in(settings: Any) -> int | None:
    try:
        told = settings.get(SETTING)
        return None if told is None else int(told.value)
    except (AttributeError, TypeError, ValueError) as error:
        log.debug("a broker does not tell %s: %s", SETTING, error)
        return None
