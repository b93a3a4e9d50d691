"""Checks on a user's consumer, and the settings an instance takes over.

The instance takes only how the consumer was made: its configuration, topics and callbacks. It runs
a client of its own, because two client settings have to differ (see the decision on wrapping).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import DeserializingConsumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.callback_calls import CallbackCalls
from kafka_keyshared.client.consumer import Callback, Consumer, Subscribed, View
from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.errors import ConfigError

Users = Mapping[str, Callable[[list[ClientPartition]], None]]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The settings that an instance takes from a user's consumer."""

    conf: Mapping[str, Any]
    subscribed: Subscribed
    facade: Consumer | None = None

    def callbacks(
        self, live: confluent_kafka.Consumer, calls: CallbackCalls, admin: KeptAdmin
    ) -> Users:
        """Return the user's rebalance callbacks, bound to the user's consumer or a view of ours.

        Without an ``on_lost`` callback, ``on_revoke`` is called for lost partitions, as the client
        does.
        """
        users = self.subscribed
        told = self.facade or View(live, calls, admin)
        found = {
            "on_assign": users.on_assign,
            "on_revoke": users.on_revoke,
            "on_lost": users.on_lost or users.on_revoke,
        }
        return {name: partial(each, told) for name, each in found.items() if each is not None}

    def take(
        self, live: confluent_kafka.Consumer | None, calls: CallbackCalls | None = None
    ) -> None:
        """Own the user's consumer, which from now on answers from the running client.

        ``calls`` receives the requests that the user's rebalance callbacks make of the consumer.
        """
        if self.facade is not None:
            self.facade.own(live, calls)

    def give_back(self) -> None:
        """Release the user's consumer to its earlier state."""
        if self.facade is not None:
            self.facade.release()


def take_over(
    consumer: confluent_kafka.Consumer,
    conf: Mapping[str, Any] | None,
    topics: Sequence[str] | None,
    callbacks: Mapping[str, Callback | None],
) -> Wrapped:
    """Check a consumer that is to be wrapped or split, and return how it was made.

    Raises :class:`ConfigError` for a consumer that has joined its group, that deserializes, or that
    has an owner. Raises it also for settings that cannot be read and were not given.
    """
    if isinstance(consumer, DeserializingConsumer):
        raise ConfigError(
            "a DeserializingConsumer cannot be wrapped: it deserializes where records are fetched, "
            "one after the other, and cannot fetch many at once. Make a kafka_keyshared.Consumer "
            "without its deserializers, and give them as key_deserializer= and value_deserializer="
        )
    if not isinstance(consumer, confluent_kafka.Consumer):
        raise ConfigError(
            f"wrap({type(consumer).__name__}): give a kafka_keyshared.Consumer, or a "
            "confluent_kafka.Consumer with conf="
        )
    if isinstance(consumer, Consumer) and consumer.has_owner:
        raise ConfigError("the consumer is wrapped or split already: one instance may own it")
    if _has_joined(consumer):
        raise ConfigError(
            "the consumer has joined its group or has partitions: wrap it before the first poll"
        )
    given: dict[str, Any] = {
        name: callback for name, callback in callbacks.items() if callback is not None
    }
    if wrong := [name for name, each in given.items() if not callable(each)]:
        raise ConfigError(f"{wrong[0]} is not callable: give a function of consumer and partitions")
    if isinstance(consumer, Consumer):
        if conf is not None and {**consumer.settings, **conf} != consumer.settings:
            raise ConfigError("conf: leave it out, a kafka_keyshared.Consumer knows its own")
        known = _with_topics(replace(consumer.subscribed, **given), topics)
        return Wrapped(consumer.settings, known, consumer)
    if conf is None:
        raise ConfigError(
            "a plain confluent_kafka.Consumer does not show how it was made: give conf=, the same "
            "dict again, or make it with kafka_keyshared.Consumer"
        )
    known = _with_topics(Subscribed(**given), topics)
    # An existing subscription would make it join the group beside the instance.
    consumer.unsubscribe()
    return Wrapped(conf, known)


def _has_joined(consumer: confluent_kafka.Consumer) -> bool:
    if isinstance(consumer, Consumer) and consumer.has_joined:
        return True
    try:
        return bool(consumer.memberid() or consumer.assignment())
    except RuntimeError as error:
        raise ConfigError(f"the consumer cannot be wrapped: {error}") from error


def _with_topics(known: Subscribed, topics: Sequence[str] | None) -> Subscribed:
    chosen = known.topics if topics is None else topics
    if isinstance(chosen, str) or not chosen:
        raise ConfigError(
            f"topics={topics!r}: give a list of topic names, or subscribe the consumer first"
        )
    return replace(known, topics=list(chosen))
