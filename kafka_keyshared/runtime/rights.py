"""Rights that the brokers refuse, their effects and their duration.

A missing right is assumed to come back. A new access-control list takes time to reach every broker,
and an authorizer refuses everything while it reloads. So the first refusal ends nothing. The client
fetches and joins again by itself, and refused commits are sent again. This module keeps the topics
and groups with a missing right and logs each once a minute. The instance ends when all its work has
been refused for ``authorization_timeout``.

librdkafka reports a refused fetch once for each partition and does not report that fetches are
allowed again. Records of the partition show that, but a partition without traffic shows nothing.
The brokers are therefore asked which of the refused topics may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import Client, RightRefusal, RightsAsked
from kafka_keyshared.core.contract.events import Right
from kafka_keyshared.core.offsets.commit import AUTHORIZATION_TIMEOUT, Commits
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, in_words, partition_of
from kafka_keyshared.status import RefusedRight

log = log_of("kafka_keyshared.loop")

TELL_EVERY = 60.0
"""Seconds between two log lines about one missing right."""

ASK_EVERY = 10.0
"""Seconds between two queries of readable topics while a topic is refused."""

ASK_TIMEOUT = 15.0
"""Seconds after which a query is given up and repeated."""

ANSWER_TIMEOUT = 1.0
"""Seconds that the owner waits when it queries the group or the ends of logs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The principal whose rights are checked, with its topics and group.

    ``topics`` are the names in the subscription. ``user`` is the principal to grant rights to, ''
    where the settings do not name one. ``timeout`` is ``authorization_timeout`` in seconds, None
    for no limit.
    """

    topics: Collection[str] = ()
    group: str = ""
    user: str = ""
    timeout: float | None = AUTHORIZATION_TIMEOUT


@dataclass(slots=True)
class _MissingRight:
    """A missing right. ``partitions`` are those whose fetches were refused.

    ``whole`` is True for a topic that the client does not see at all because DESCRIBE is missing.
    It is also True for a group that rejects the member because of such a topic.
    """

    since: float
    error: str
    tell_at: float
    whole: bool = False
    commits: bool = False
    partitions: set[TopicPartition] = field(default_factory=set)


class DeniedRights:
    """The missing rights of one instance. Times are monotonic, in seconds.

    ``subject`` says whose rights they are and how long they may be missing. It is set before the
    start. ``received`` returns the received end of a partition.
    """

    def __init__(
        self,
        client: Client,
        commits: Commits,
        received: Callable[[TopicPartition], int | None],
    ) -> None:
        self.subject = Subject()
        self._client = client
        self._received = received
        self._commits = commits
        self._denials = commits.denials
        self._topics: dict[str, _MissingRight] = {}
        self._group: _MissingRight | None = None
        # When the group last refused this member, and how many commits were accepted by then. None
        # when only commits are refused.
        self._group_refused_at: float | None = None
        self._accepted = 0
        # All partitions whose fetches were refused, including those that went to another member.
        # The client does not repeat a refusal when such a partition comes back.
        self.unreadable: set[TopicPartition] = set()
        self._asked: RightsAsked | None = None
        self._asked_for: frozenset[str] = frozenset()
        self._ask_at = float("-inf")
        # Since when every operation of this instance has been refused.
        self._nothing_since: float | None = None
        self._look_at = float("-inf")

    # --- events and answers ---

    def refused(
        self, refusal: RightRefusal, assigned: Collection[TopicPartition], now: float
    ) -> None:
        """Note a refusal that came as an event or as an answer."""
        if refusal.right is Right.GROUP:
            self._group_refused_at, self._accepted = now, self._commits.accepted_count
            self._refuse_group(refusal.error, now)
            return
        if not refusal.topic:
            # Under KIP-848 the coordinator refuses a member for a topic without naming the topic.
            self._group_refused_at, self._accepted = now, self._commits.accepted_count
            self._refuse_group(refusal.error, now).whole = True
            return
        it = self._refuse_topic(refusal.topic, refusal.error, now)
        if refusal.partition is not None and refusal.partition in assigned:
            it.partitions.add(refusal.partition)
            self.unreadable.add(refusal.partition)
        else:
            it.whole = True

    def delivered(self, chunk: Sequence[Record], now: float) -> None:
        """Note that partitions deliver. Called only while a topic is refused."""
        partitions = {partition_of(record) for record in chunk if record.error() is None}
        if not partitions:
            return
        self._nothing_since = None
        self._readable(partitions & self.unreadable, now)

    def reached_end(self, partition: TopicPartition, now: float) -> None:
        """Note that a fetch of this partition was answered: its end was reached."""
        if partition in self.unreadable:
            self._readable({partition}, now)

    def assigned(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Note an assignment: the group accepts this member, which sees the topics."""
        self._group_refused_at = None
        for topic in {each.topic for each in partitions}:
            if (it := self._topics.get(topic)) is not None:
                it.whole = False
        self._settle(now)

    # --- at each heartbeat ---

    def beat(self, assigned: Collection[TopicPartition], now: float) -> str | None:
        """Check commits, query, log; return the reason to end the instance, or None."""
        self._note_commits(now)
        if self._group_refused_at is not None and now >= self._group_refused_at + ASK_EVERY:
            self._ask_group(assigned, now)
        if self._topics:
            self._ask(now)
        for name, it in self._topics.items():
            if now >= it.tell_at and self._concerns(it, assigned):
                it.tell_at = now + TELL_EVERY
                log.warning("%s", self._topic_line(name, it))
        if self._group is not None and now >= self._group.tell_at:
            self._group.tell_at = now + TELL_EVERY
            log.warning("%s", self._group_line(self._group))
        return self._over(assigned, now)

    def shown(self, assigned: Collection[TopicPartition], now: float) -> tuple[RefusedRight, ...]:
        """Return the missing rights for a status, the group's first."""
        found = []
        if (it := self._group) is not None:
            line = self._group_line(it)
            found.append(RefusedRight(topic="", seconds=now - it.since, error=it.error, text=line))
        for name, it in sorted(self._topics.items()):
            if self._concerns(it, assigned):
                line = self._topic_line(name, it)
                seconds = now - it.since
                found.append(RefusedRight(topic=name, seconds=seconds, error=it.error, text=line))
        return tuple(found)

    def __bool__(self) -> bool:
        """Return whether a topic is refused, so that deliveries have to be checked."""
        return bool(self._topics)

    # --- bookkeeping ---

    def _refuse_topic(self, topic: str, error: str, now: float) -> _MissingRight:
        it = self._topics.setdefault(topic, _MissingRight(now, error, now))
        it.error = error
        return it

    def _refuse_group(self, error: str, now: float) -> _MissingRight:
        if self._group is None:
            self._group = _MissingRight(now, error, now)
        self._group.error, self._group.whole = error, False
        return self._group

    def _note_commits(self, now: float) -> None:
        """Update the denied commits. An accepted commit shows that the group is open."""
        if self._commits.accepted_count > self._accepted:
            self._group_refused_at = None
        denied: dict[str, str] = {}
        group = None
        for partition, denial in self._denials.partitions.items():
            if denial.right is Right.GROUP:
                group = _words(denial.error)
            else:
                denied[partition.topic] = _words(denial.error)
        if group is not None:
            self._refuse_group(group, now)
        for topic, error in denied.items():
            self._refuse_topic(topic, error, now).commits = True
        for topic, it in self._topics.items():
            it.commits = topic in denied
        self._settle(now, group_commits=group is not None)

    def _readable(self, partitions: Collection[TopicPartition], now: float) -> None:
        self.unreadable.difference_update(partitions)
        for it in self._topics.values():
            it.partitions.difference_update(partitions)
        self._settle(now)

    def _settle(self, now: float, *, group_commits: bool | None = None) -> None:
        """Remove refusals that have ended, and log their end."""
        for name in [each for each, it in self._topics.items() if _allowed(it)]:
            since = self._topics.pop(name).since
            log.warning("topic %s: no longer refused, after %s", name, in_words(now - since))
        if group_commits is None:
            denials = self._denials.partitions.values()
            group_commits = any(each.right is Right.GROUP for each in denials)
        refused = group_commits or self._group_refused_at is not None
        if self._group is not None and not refused:
            since, self._group = self._group.since, None
            log.warning(
                "group %s: no longer refused, after %s", self.subject.group, in_words(now - since)
            )

    def _ask_group(self, assigned: Collection[TopicPartition], now: float) -> None:
        """Query a committed position from a group that has refused nothing for a while.

        A refused JoinGroup is reported each time. A refused FindCoordinator is reported once, and
        its end never.
        """
        partition = min(assigned, default=None)
        if partition is None:
            return  # not joined yet; an assignment shows the join
        self._group_refused_at = now
        try:
            self._client.committed([partition], ANSWER_TIMEOUT)
        except KafkaException as error:
            log.debug("group %s: no committed position: %s", self.subject.group, error)
        else:
            self._group_refused_at = None
            self._settle(now)

    def _ask(self, now: float) -> None:
        """Query which refused topics may be read, or take the answer."""
        if self._asked is not None:
            found = self._asked.answer()
            if found is not None:
                self._asked = None
                self._allowed(found & self._asked_for, now)
            elif now >= self._ask_at + ASK_TIMEOUT:
                self._asked = None
        elif now >= self._ask_at:
            unreadable = (n for n, it in self._topics.items() if it.whole or it.partitions)
            self._asked_for = frozenset(unreadable)
            self._ask_at = now + ASK_EVERY
            if self._asked_for:
                self._asked = self._client.ask_rights(self._asked_for)

    def _allowed(self, topics: Collection[str], now: float) -> None:
        for name in topics:
            if (it := self._topics.get(name)) is not None:
                it.whole = False
                self.unreadable -= it.partitions
                it.partitions.clear()
        self._settle(now)

    @staticmethod
    def _concerns(it: _MissingRight, assigned: Collection[TopicPartition]) -> bool:
        """Return whether this member lacks the right now; not if others own all its partitions."""
        return it.whole or it.commits or any(each in assigned for each in it.partitions)

    # --- halting ---

    def _over(self, assigned: Collection[TopicPartition], now: float) -> str | None:
        """Return the reason to end when all work has been refused for the whole timeout."""
        if not self._all_refused(assigned):
            self._nothing_since = None
            return None
        if self._nothing_since is None:
            self._nothing_since = now
        timeout = self.subject.timeout
        if timeout is None or now < max(self._nothing_since + timeout, self._look_at):
            return None
        self._look_at = now + ASK_EVERY
        if self._group is None and not self._something_to_read(assigned):
            return None
        return (
            f"the brokers have refused all work of this instance for {in_words(timeout)} "
            f"(authorization_timeout): {'; '.join(self._lines(assigned))}"
        )

    def _all_refused(self, assigned: Collection[TopicPartition]) -> bool:
        if self._group is not None:
            return True
        topics = {*self.subject.topics, *(each.topic for each in assigned)}
        return bool(topics) and all(
            (it := self._topics.get(each)) is not None and (it.whole or it.partitions)
            for each in topics
        )

    def _something_to_read(self, assigned: Collection[TopicPartition]) -> bool:
        """Return whether refused partitions have records, as far as the brokers report.

        Without records no work is blocked, and nothing shows that the right is still missing.
        """
        if any(it.whole for it in self._topics.values()):
            return True
        those = sorted(self.unreadable & set(assigned))
        bounds = self._client.log_bounds(those, ANSWER_TIMEOUT) if those else {}
        return any(
            each not in bounds or bounds[each].end > (self._received(each) or bounds[each].start)
            for each in those
        )

    def _lines(self, assigned: Collection[TopicPartition]) -> Iterator[str]:
        if self._group is not None:
            yield self._group_line(self._group)
        for name, it in sorted(self._topics.items()):
            if self._concerns(it, assigned):
                yield self._topic_line(name, it)

    # --- log texts ---

    def _topic_line(self, name: str, it: _MissingRight) -> str:
        if it.whole or it.partitions:
            stops = "none of its records are fetched; the client asks again, other topics go on"
        else:
            stops = "its records are handled and its commits are sent again"
        right = "DESCRIBE and READ" if it.whole else "READ"
        return (
            f"topic {name}: {right} refused ({it.error}); {stops}. Grant {right} on topic {name} "
            f"to {self._grantee()}"
        )

    def _group_line(self, it: _MissingRight) -> str:
        if it.whole:
            return (
                f"group {self.subject.group}: a topic of the subscription is refused ({it.error}); "
                "no partition is assigned; it is tried again. Grant DESCRIBE and READ on each of "
                f"{', '.join(sorted(self.subject.topics))} to {self._grantee()}"
            )
        return (
            f"group {self.subject.group}: READ refused ({it.error}); nothing can be committed and "
            "no partition assigned; both are tried again, and running records end. Grant READ on "
            f"group {self.subject.group} to {self._grantee()}"
        )

    def _grantee(self) -> str:
        return f"user {self.subject.user}" if self.subject.user else "the user of this instance"


def _words(error: str) -> str:
    """Return the broker's message from a commit error that also has a code and number."""
    _, found, words = error.partition('str="')
    return words.rstrip('"}') if found else error


def _allowed(it: _MissingRight) -> bool:
    return not (it.whole or it.commits or it.partitions)


def user_in(conf: Mapping[str, object]) -> str:
    """Return the user name in a client's settings, or '' if there is none."""
    return str(conf.get("sasl.username") or conf.get("sasl.kerberos.principal") or "")
