"""Asks brokers how long commit metadata may be (``offset.metadata.max.bytes``).

The limit is a setting of brokers, and mostly the same for all. It is asked once, when the group is
joined, and nothing depends on the answer: where the user may not read the settings of brokers
(DESCRIBE_CONFIGS on the cluster), or they cannot be asked, a refused commit tells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from kafka_keyshared.config import connection_conf
from kafka_keyshared.logs import log_of
from kafka_keyshared.program import forks

log = log_of("kafka_keyshared.kafka")

ANSWER_WITHIN = 5.0
"""Seconds after which a question counts as not answered."""

BROKERS_MOST = 5
"""Brokers that are asked at most."""

SETTING = "offset.metadata.max.bytes"

_QUIET = {"log_level": 2, "enable.metrics.push": False}

_PARENTS: list[AdminClient | None] = []
"""In the child of a fork: their destructors would wait for threads that it does not have."""


class KafkaMetadataLimit:
    """One question to some ``brokers``: :class:`~.port.MetadataLimitAsked`.

    It has an admin client of its own. Nothing is asked where ``oauth_cb`` is set: making a client
    waits for that callback.
    """

    def __init__(self, conf: Mapping[str, Any], brokers: Collection[int]) -> None:
        self.limit: int | None = None
        self._admin: AdminClient | None = None
        self._asked: list[Future[Any]] = []
        own = connection_conf(conf)
        if own.get("oauth_cb") is not None or not brokers:
            return
        try:
            self._admin = AdminClient({**own, **_QUIET})
            # A call asks one broker.
            for number in sorted(brokers)[:BROKERS_MOST]:
                broker = ConfigResource(ResourceType.BROKER, str(number))
                asked = self._admin.describe_configs([broker], request_timeout=ANSWER_WITHIN)
                self._asked.append(asked[broker])
        except (KafkaException, TypeError, ValueError) as error:
            _not_told(error)
        forks.watch(self)

    def forked(self) -> None:
        """Keep the parent's client for ever."""
        _PARENTS.append(self._admin)

    def answered(self, timeout: float) -> bool:
        """Say whether the question is over, waiting at most ``timeout`` seconds for that.

        ``limit`` then has the lowest limit that was told, None where none was.
        """
        if wait(self._asked, timeout).not_done:
            return False
        limits = [limit for each in self._asked if (limit := _limit_in(each)) is not None]
        self.limit = min(limits, default=None)
        self._admin = None
        return True


def _limit_in(settings: Future[Any]) -> int | None:
    try:
        told = settings.result().get(SETTING)
        return None if told is None else int(told.value)
    except (KafkaException, AttributeError, TypeError, ValueError) as error:
        _not_told(error)
        return None


def _not_told(error: Exception) -> None:
    log.debug("a broker does not tell %s: %s", SETTING, error)
