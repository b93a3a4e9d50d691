"""The values that every layer shares: records as they are read, positions, verdicts.

Nothing here knows Kafka's client, threads or time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """A partition of a topic; the unit of assignment, position and commit."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(Protocol):
    """What a handler receives: the read methods of ``confluent_kafka.Message``.

    The runtime hands over the client's own message object, so nothing is copied per record.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> list[tuple[str, Any]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def leader_epoch(self) -> int | None: ...
    def error(self) -> Any: ...
    def __len__(self) -> int: ...


class Verdict(Exception):  # noqa: N818 - a decision, not an error; raising it is one of two ways
    """What a handler decides about its record. It may be returned or raised.

    Returning ``None`` means :class:`Ack`. Any other exception is a failed attempt.
    """


class Ack(Verdict):
    """The record is done."""


class Drop(Verdict):
    """The record is given up on purpose: settled, counted, not archived."""


class Retry(Verdict):
    """The attempt failed; run the record again, its lane closed meanwhile.

    ``after`` is the delay in seconds; None takes the subscription's back-off.
    """

    def __init__(self, after: float | None = None) -> None:
        super().__init__(after)
        if after is not None and not after >= 0:
            raise ValueError(f"Retry(after={after!r}): the delay is in seconds and not negative")
        self.after = after


class DeadLetter(Verdict):
    """The record goes to the dead-letter topic at once, without further attempts."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Undecodable(Exception):  # noqa: N818 - what is said of a record, by whoever reads its key
    """The key of this record cannot be read, and never will be; ``reason`` says why.

    Raised by a key function. What becomes of the record is the policy ``undecodable``'s to say.
    """
