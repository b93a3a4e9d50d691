"""A ``Consumer`` like the client's own that remembers how it was made.

An existing consumer shows neither its configuration nor its callbacks. A second ``subscribe``
replaces its callbacks, and only the constructor takes ``on_commit``. A consumer that is to be
wrapped or split later has to remember all of that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import confluent_kafka

from kafka_keyshared.client.callback_calls import CallbackCalls
from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.config import client_conf
from kafka_keyshared.errors import KeySharedError

Callback = Callable[..., Any]

OWNERS_CALLS = (
    *("poll", "consume", "commit", "store_offsets", "seek", "pause", "resume", "close"),
    *("subscribe", "unsubscribe", "assign", "unassign", "incremental_assign"),
    "incremental_unassign",
)
"""Calls reserved for the owner: each changes the records that are read, or that count as done."""

OWNERS_ANSWERS = ("assignment", "position", "memberid", "consumer_group_metadata")
"""Queries that only the group's client can answer, and only on its owner thread.

A call from another thread would wait behind the owner's next poll, and the one after it, forever.
"""

BROKERS_ANSWERS = (
    *("cluster_id", "committed", "get_watermark_offsets", "list_topics", "offsets_for_times"),
    "set_sasl_credentials",
)
"""Calls that any thread may make at any time."""

NOT_IN_CALLBACKS = ("cluster_id", "list_topics")
"""Queries that use another client inside a callback: see :func:`.offset_queries.ask_bounds`."""

MADE_WITHIN = 10.0
"""Seconds for that other client to be made. It may wait for a token."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The arguments of ``subscribe``: topics and rebalance callbacks."""

    topics: Sequence[str] = ()
    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None


class Consumer(confluent_kafka.Consumer):
    """``confluent_kafka.Consumer``, ready to be wrapped (:meth:`KeyShared.wrap`) or split.

    It behaves like its parent, with three differences:

    - It does not commit by itself: ``enable.auto.commit`` is false unless given, and an explicit
      true is refused.
    - It joins its group at the first call after :meth:`subscribe`, so that wrapping it does not
      make it join twice.
    - Once it has an owner, calls that would disturb the owner raise :class:`KeySharedError`.

    Calls that query the brokers (``committed``, ``get_watermark_offsets``, ``list_topics`` …) keep
    working. ``assignment`` and ``position`` answer inside rebalance callbacks; elsewhere use the
    owner's status. ``settings`` is its configuration with our defaults, ``subscribed`` the
    arguments of the last :meth:`subscribe`.

    While it has an owner it has no connections, until one of those queries is made. A client
    without polls logs a line for each failed connection, many a second while the brokers are down.

    Raises :class:`ConfigError` for settings that would commit unfinished records.
    """

    def __init__(self, conf: dict[str, Any] | None = None, **more: Any) -> None:
        self.settings = client_conf({**(conf or {}), **more})
        self.subscribed = Subscribed()
        self.has_owner = False
        self.live: confluent_kafka.Consumer | None = None
        self.calls: CallbackCalls | None = None
        self._owners_thread = 0
        self._join: Callable[[], None] | None = None
        self._lock = threading.Lock()
        # ``_away``: there is no client behind it until the next call. ``_quiet``: its client logs
        # nothing. ``_asking``: number of queries in flight. Closing the client under them would end
        # the process.
        self._away = self._quiet = False
        self._asking = 0
        super().__init__(dict(self.settings))

    @property
    def has_joined(self) -> bool:
        """Return whether it has joined its group already."""
        return bool(self.subscribed.topics) and self._join is None

    def own(
        self, live: confluent_kafka.Consumer | None, calls: CallbackCalls | None = None
    ) -> None:
        """Take ownership, on the thread that runs the client ``live`` in its place."""
        self.has_owner, self.live, self._owners_thread = True, live, threading.get_ident()
        self.calls = calls
        with self._lock:
            if not (self._away or self._quiet or self._asking):
                super().close()
                self._away = True

    def release(self) -> None:
        """Release it to its earlier state."""
        self.has_owner, self.live, self.calls = False, None, None

    def _come_back(self) -> None:
        """Make a client again. An owned one is not polled, so its log is off."""
        with self._lock:
            if self._away:
                quiet = {"log_level": 0} if self.has_owner else {}
                super().__init__({**self.settings, **quiet})
                self._away, self._quiet = False, self.has_owner

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep the client while a query is in flight."""
        with self._lock:
            self._asking += 1
        try:
            if self._away:
                self._come_back()
            yield
        finally:
            with self._lock:
                self._asking -= 1

    def __exit__(self, *error: object) -> None:
        """Close it as the parent does."""
        self._away = False
        super().__exit__(*error)

    if not TYPE_CHECKING:  # a type checker sees the parent's methods

        def subscribe(self, topics, on_assign=None, on_revoke=None, on_lost=None):
            """Subscribe as the parent does, at the next call, and remember the arguments."""
            _refuse_if_owned(self, "subscribe")
            if isinstance(topics, str):
                raise TypeError(f"subscribe({topics!r}): give a list of topic names")
            topics = list(topics)
            if not all(isinstance(each, str) for each in topics):
                raise TypeError(f"subscribe({topics!r}): give a list of topic names")
            given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
            callbacks = {name: each for name, each in given.items() if each is not None}
            if wrong := [name for name, each in callbacks.items() if not callable(each)]:
                raise TypeError(f"subscribe: {wrong[0]} is not callable")
            self.subscribed = Subscribed(topics, **callbacks)
            self._join = functools.partial(super().subscribe, list(topics), **callbacks)

        def unsubscribe(self):
            """Unsubscribe as the parent does, and forget the subscription."""
            _refuse_if_owned(self, "unsubscribe")
            self.subscribed, self._join = Subscribed(), None
            if not self._away:
                super().unsubscribe()

        def close(self):
            """Close it as the parent does."""
            _refuse_if_owned(self, "close")
            self._away = False  # its client was closed already
            super().close()


def _refuse_if_owned(consumer: Consumer, name: str) -> None:
    if consumer.has_owner:
        raise KeySharedError(_refusal(name))


def _refusal(name: str) -> str:
    return (
        f"{name}() on a consumer that is wrapped or split: its owner polls and commits what is "
        "done; stop that first, or use the members of the split"
    )


def _guarded(name: str) -> Callback:
    original = getattr(confluent_kafka.Consumer, name)

    @functools.wraps(original)
    def method(self: Consumer, *arguments: Any, **more: Any) -> Any:
        calls = self.calls
        if calls is not None and calls.takes(name) and threading.get_ident() == self._owners_thread:
            return getattr(calls, name)(*arguments, **more)
        _refuse_if_owned(self, name)
        if self._away:
            self._come_back()
        join = self._join
        if join is not None:
            self._join = None
            join()
        return original(self, *arguments, **more)

    return method


def _asked(name: str) -> Callback:
    original = getattr(confluent_kafka.Consumer, name)

    @functools.wraps(original)
    def method(self: Consumer, *arguments: Any, **more: Any) -> Any:
        live = self.live
        if live is None or name in BROKERS_ANSWERS:
            with self._kept():
                return original(self, *arguments, **more)
        if threading.get_ident() != self._owners_thread:
            raise KeySharedError(
                f"{name}() on a consumer that is wrapped or split: only its owner's thread can ask "
                "that, in a rebalance callback; elsewhere see the status() of the app"
            )
        return getattr(live, name)(*arguments, **more)

    return method


for _name in OWNERS_CALLS:
    if _name not in vars(Consumer):
        setattr(Consumer, _name, _guarded(_name))
for _name in (*OWNERS_ANSWERS, *BROKERS_ANSWERS):
    setattr(Consumer, _name, _asked(_name))


class View:
    """The consumer argument of rebalance callbacks when the user has no consumer.

    It answers queries and takes the calls of :class:`CallbackCalls`.
    """

    def __init__(
        self, live: confluent_kafka.Consumer, calls: CallbackCalls, admin: KeptAdmin
    ) -> None:
        self._live = live
        self._calls = calls
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        if self._calls.takes(name):
            return getattr(self._calls, name)
        if name in OWNERS_CALLS:
            raise KeySharedError(_refusal(name))
        if name in NOT_IN_CALLBACKS:
            return getattr(self._admin.client(MADE_WITHIN), name)
        return getattr(self._live, name)
