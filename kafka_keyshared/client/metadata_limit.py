"""Asks the group's coordinator how long commit metadata may be (``offset.metadata.max.bytes``).

The limit is a setting of the broker that stores the group's commits. It is asked once, when the
group is joined, and nobody depends on the answer: where the user may not read the settings of
brokers (DESCRIBE_CONFIGS on the cluster), or the broker cannot be asked, a refused commit tells.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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

SETTING = "offset.metadata.max.bytes"

_QUIET = {"log_level": 2, "enable.metrics.push": False}

_PARENTS: list[AdminClient | None] = []
"""In the child of a fork: their destructors would wait for threads that it does not have."""


class KafkaMetadataLimit:
    """One question: :class:`~.port.MetadataLimitAsked` over an admin client of its own.

    Nothing is asked where ``oauth_cb`` is set: making a client waits for that callback.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.limit: int | None = None
        self._admin: AdminClient | None = None
        self._coordinator: Future[Any] | None = None
        self._settings: Future[Any] | None = None
        own = connection_conf(conf)
        group = str(conf.get("group.id") or "")
        if own.get("oauth_cb") is not None or not group:
            return
        try:
            self._admin = AdminClient({**own, **_QUIET})
            self._coordinator = self._admin.describe_consumer_groups(
                [group], request_timeout=ANSWER_WITHIN
            )[group]
        except (KafkaException, TypeError, ValueError) as error:
            self._not_told(error)
        forks.watch(self)

    def forked(self) -> None:
        """Keep the parent's client for ever."""
        _PARENTS.append(self._admin)

    def answered(self, timeout: float) -> bool:
        """Say whether the question is over, waiting at most ``timeout`` seconds for that.

        ``limit`` then has the answer, None where none was given.
        """
        until = time.monotonic() + timeout
        if self._coordinator is not None:
            if wait([self._coordinator], timeout).not_done:
                return False
            self._ask(self._coordinator)
        if self._settings is not None:
            if wait([self._settings], max(0.0, until - time.monotonic())).not_done:
                return False
            self._hear(self._settings)
        self._admin = None
        return True

    def _ask(self, coordinator: Future[Any]) -> None:
        """Ask the coordinator for its settings."""
        self._coordinator = None
        try:
            broker = ConfigResource(ResourceType.BROKER, str(coordinator.result().coordinator.id))
            if self._admin is not None:
                self._settings = self._admin.describe_configs(
                    [broker], request_timeout=ANSWER_WITHIN
                )[broker]
        except (KafkaException, AttributeError, TypeError, ValueError) as error:
            self._not_told(error)

    def _hear(self, settings: Future[Any]) -> None:
        self._settings = None
        try:
            told = settings.result().get(SETTING)
            self.limit = None if told is None else int(told.value)
        except (KafkaException, AttributeError, TypeError, ValueError) as error:
            self._not_told(error)

    @staticmethod
    def _not_told(error: Exception) -> None:
        log.debug("the brokers do not tell %s: %s", SETTING, error)
