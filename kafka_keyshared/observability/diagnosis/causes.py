"""All causes that a diagnosis can name, in order of repair.

A cause stands before its consequences: while no broker answers, no commit is accepted. Each cause
has a section named by its code in ``docs/reference/diagnosis.md``, with the same content. Codes and
numbers are public: a number is never given to another cause.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Level: TypeAlias = Literal["fail", "warn"]
"""Severity of a cause.

``fail``: something has stopped, or will, until an operator acts. ``warn``: processing continues,
but slower than possible, or the state passes by itself.
"""

PAGE = "reference/diagnosis.md"
"""The page that explains the causes, relative to the folder of the documents."""


class Cause(NamedTuple):
    """One cause: its stable name and number, its meaning, and the remedy."""

    code: str
    number: int
    level: Level
    means: str
    cure: str

    @property
    def page(self) -> str:
        """Return page and anchor of its section."""
        return f"{PAGE}#{self.code}"


LOOP_SILENT = Cause(
    "loop-silent",
    1,
    "fail",
    "the owner thread of the Kafka client has not run a round for seconds; nothing is fetched, "
    "handed out or committed",
    "find out what blocks the owner thread: py-spy dump --pid PID; a callback or a key function "
    "of the program runs on that thread, and C code can keep the interpreter lock",
)
BROKERS_AWAY = Cause(
    "brokers-away",
    2,
    "fail",
    "no broker of the cluster answers; nothing is fetched or committed",
    "restore the brokers or the network; the instance then continues by itself (keyshared "
    "doctor names the failing part of the connection)",
)
COORDINATOR_LOST = Cause(
    "coordinator-lost",
    3,
    "fail",
    "brokers answer, but the coordinator of the group does not; commits wait, and the group "
    "cannot assign partitions",
    "check the broker that leads the group's partition of __consumer_offsets; the instance "
    "continues by itself when another broker takes over",
)
RIGHT_REFUSED = Cause(
    "right-refused",
    27,
    "fail",
    "the brokers refuse a right. Operations that need it wait and are retried; all others "
    "continue. If all are refused, the instance ends after authorization_timeout",
    "grant the right that the sentence names; the instance then continues by itself",
)
COMMIT_FAILING = Cause(
    "commit-failing",
    4,
    "fail",
    "the broker refuses every commit; settled records would run again after a restart",
    "fix the cause that the error names; the commit is retried",
)
COMMIT_UNANSWERED = Cause(
    "commit-unanswered",
    5,
    "fail",
    "a commit in flight has no answer; later commits wait for it",
    "check the group's coordinator and the network to it; when the client reports a timeout, the "
    "commit is retried",
)
MOST_ATTEMPTS_FAIL = Cause(
    "most-attempts-fail",
    25,
    "fail",
    "most attempts fail, for many keys. So the records are not the cause: a dependency of the "
    "handler is down, or the handler is broken",
    "restore the dependency or fix the handler; until then pause (app.pause(), keyshared "
    "pause), then replay the dead letters with keyshared dlq replay --error ERROR",
)
DEPENDENCY_WAITING = Cause(
    "dependency-waiting",
    29,
    "fail",
    "a dependency of the handler is away: attempts of several keys fail with one error. Nothing "
    "is fetched or started, apart from one record at a time as a probe. No attempt is used up",
    "restore the dependency, or fix the handler; processing continues by itself within 5 s. If "
    "the records are at fault, raise DeadLetter in the handler, or set breaker to false",
)
DEAD_LETTERING = Cause(
    "dead-lettering-much",
    26,
    "warn",
    "many records settle unprocessed: they go to the dead-letter topic, or the poison policy "
    "drops them. From half of the records on, the level is fail",
    "pause (app.pause(), keyshared pause), fix the cause, then replay the dead letters with "
    "keyshared dlq replay --error ERROR; dropped records are lost to this group",
)
LOOP_HELD = Cause(
    "loop-held",
    28,
    "warn",
    "the owner thread was blocked for seconds and runs again. In that time nothing was polled, "
    "handed out or committed. A block longer than max.poll.interval.ms costs the partitions",
    "if the process stood still, check stops and pauses of the machine, swap, and C calls that "
    "keep the interpreter lock; if only the owner thread was blocked, make the callback that "
    "blocked it faster",
)
REBALANCE = Cause(
    "rebalance-in-progress",
    6,
    "warn",
    "a rebalance is in progress, and nothing is fetched; a member that died keeps its "
    "partitions until session.timeout.ms is over",
    "wait; if it does not end, find the member that does not answer, or that takes too long to "
    "revoke (keyshared doctor names the members)",
)
NO_PARTITIONS = Cause(
    "no-partitions",
    7,
    "warn",
    "the group has assigned no partition to this member; usually there are more members than "
    "partitions",
    "do nothing if the member is a spare; otherwise run fewer members with more workers each, "
    "because one partition can feed many workers",
)
DLQ_REFUSING = Cause(
    "dlq-refusing",
    8,
    "fail",
    "dead letters are not written; their records stay unsettled, and their keys wait",
    "fix the cause that the error names: create the topic, grant WRITE on it, or raise its "
    "maximum message size; the writes are retried",
)
DLQ_LIMIT = Cause(
    "dlq-limit",
    9,
    "fail",
    "too many records of a partition went to the dead-letter topic, so the partition is stopped "
    "(dlq_limit)",
    "fix the cause, then lift the limit (app.lift_dlq_limit()) or restart",
)
KEY_UNREADABLE = Cause(
    "key-unreadable",
    10,
    "fail",
    "the key of a record cannot be read yet, so its partition waits at this record: later "
    "records may have the same key",
    "follow the reason: restore the schema registry, register the schema, or set key= and "
    "key_schema= to the format of the records; the read is retried",
)
HANDLER_STUCK = Cause(
    "handler-stuck",
    11,
    "fail",
    "a handler runs past the ack timeout and cannot be ended from outside; its key waits",
    "find the blocking call in the stack, and give it a timeout; with workers='process' the "
    "package can kill such a handler",
)
KEY_BLOCKED = Cause(
    "key-blocked",
    12,
    "fail",
    "a record has used up its attempts and blocks its key until an operator decides",
    "fix the handler and restart, or decide about the record (app.unblock(), app.drop(), "
    "app.dead_letter())",
)
WORKER_ABSENT = Cause(
    "worker-absent",
    13,
    "fail",
    "records wait for a worker with a range or a filter of its own, and that worker is absent",
    "start the worker, or give its range or filter to another one",
)
HANDLER_SLOW = Cause(
    "handler-slow",
    14,
    "warn",
    "a handler has been running one record for a long time; its key waits",
    "find the slow call in the stack, and give it a timeout; ack_timeout bounds an attempt",
)
KEY_DIVERTED = Cause(
    "key-diverted",
    15,
    "warn",
    "all records of a key go to the dead-letter topic without an attempt (on_exhausted='divert')",
    "fix the handler, then unblock the key (app.unblock()) and replay its dead letters",
)
SET_FULL = Cause(
    "metadata-full",
    16,
    "warn",
    "the settled set of a partition has no room left in the commit metadata, so no further "
    "record of it starts until older records settle",
    "find the oldest unsettled record of the partition and let it settle; or raise the broker's "
    "offset.metadata.max.bytes",
)
SLOT_DRAINING = Cause(
    "slot-draining",
    17,
    "warn",
    "a slot has moved to another worker and waits for a record that still runs on the old one",
    "wait for that record; if it hangs, look at the stack of its handler",
)
RETRY_WAITING = Cause(
    "retry-waiting",
    18,
    "warn",
    "a key waits for the next attempt of a record that fails repeatedly",
    "check the error: a dependency may be down; on_exhausted= and attempts= decide what follows "
    "the last attempt",
)
PAUSED = Cause(
    "paused-by-hand",
    19,
    "warn",
    "partitions are paused by hand; nothing is fetched from them",
    "resume them (app.resume())",
)
REPORT_FAILING = Cause(
    "report-failing",
    24,
    "warn",
    "the reports of this instance are not written to the topic of the group view, so other "
    "instances see it as silent; records are still consumed",
    "fix the cause that the error names: create the topic, or grant WRITE and READ on it; the "
    "write is retried",
)
HOT_KEY = Cause(
    "hot-key",
    20,
    "warn",
    "a key gets more records than one worker can run in order. Its partition is held back, or "
    "most of the growing backlog has this key. More workers do not help; other keys continue",
    "make the handler of that key faster: a coroutine can wait for several calls at once, and a "
    "batch handler takes several of its records at once; or give its records finer keys "
    "(keyshared advise)",
)
WINDOW_FULL = Cause(
    "window-full",
    21,
    "warn",
    "the backlog grows while workers are idle: received records that cannot run yet fill the "
    "window, so nothing else is fetched",
    "check the reason why records wait (closed keys, slow records), or raise window_records",
)
WORKERS_LIMIT = Cause(
    "workers-limit",
    22,
    "warn",
    "the backlog grows, and all workers are busy",
    "add workers (app.scale()), or make the handler faster; for CPU-bound handlers use "
    "workers='process'",
)
BROKER_LIMIT = Cause(
    "broker-limit",
    23,
    "warn",
    "the backlog grows, workers are idle, and the window has room: fewer records are fetched "
    "than written",
    "check the brokers and the network; to fetch more, raise fetch.message.max.bytes and "
    "queued.max.messages.kbytes; more members fetch in parallel",
)

CAUSES: tuple[Cause, ...] = (
    *(LOOP_SILENT, BROKERS_AWAY, COORDINATOR_LOST, RIGHT_REFUSED),
    *(COMMIT_FAILING, COMMIT_UNANSWERED),
    *(DEPENDENCY_WAITING, MOST_ATTEMPTS_FAIL, DLQ_REFUSING, DLQ_LIMIT),
    *(KEY_UNREADABLE, HANDLER_STUCK, KEY_BLOCKED, WORKER_ABSENT, DEAD_LETTERING, LOOP_HELD),
    *(REBALANCE, NO_PARTITIONS, HANDLER_SLOW, KEY_DIVERTED, SET_FULL, SLOT_DRAINING),
    *(RETRY_WAITING, PAUSED, REPORT_FAILING, HOT_KEY, WINDOW_FULL, WORKERS_LIMIT, BROKER_LIMIT),
)
"""In order of repair."""

OUTAGES = frozenset({DEPENDENCY_WAITING.code, MOST_ATTEMPTS_FAIL.code})
"""Codes of causes that are no fault of single records."""
