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
    "the thread that owns the Kafka client has not come round for seconds; nothing is fetched, "
    "handed out or committed",
    "see what holds it up: py-spy dump --pid PID; a callback or a key function of the program's "
    "runs on that thread, and so does whatever keeps the interpreter to itself",
)
BROKERS_AWAY = Cause(
    "brokers-away",
    2,
    "fail",
    "no broker of the cluster answers: nothing is fetched, and nothing committed",
    "bring the brokers or the network back; it goes on by itself then (keyshared doctor says "
    "what of the connection fails)",
)
COORDINATOR_LOST = Cause(
    "coordinator-lost",
    3,
    "fail",
    "brokers answer, and the one that looks after the group does not: commits wait, and the group "
    "can give out no partitions",
    "look at the broker that leads the group's partition of __consumer_offsets; it goes on by "
    "itself when another one takes over",
)
RIGHT_REFUSED = Cause(
    "right-refused",
    27,
    "fail",
    "the brokers refuse this instance a right: what needs it waits and is tried again, the rest "
    "goes on; when everything is refused, the instance ends after authorization_timeout",
    "grant the right that the sentence names; it goes on by itself then",
)
COMMIT_FAILING = Cause(
    "commit-failing",
    4,
    "fail",
    "the broker refuses one commit after the other: what is done would run again after a restart",
    "do what the error asks for; it is committed again by itself once that may be",
)
COMMIT_UNANSWERED = Cause(
    "commit-unanswered",
    5,
    "fail",
    "a commit is on its way and nobody answers: the next ones wait for it",
    "look at the group's coordinator and at the way to it; a commit that the client gives up on is "
    "sent again",
)
MOST_ATTEMPTS_FAIL = Cause(
    "most-attempts-fail",
    25,
    "fail",
    "most attempts fail, of many keys: the records are not to blame; a dependency of the handler "
    "is away, or the handler is broken",
    "bring the dependency back or mend the handler; until then pause (app.pause(), keyshared "
    "pause), then replay the dead letters with keyshared dlq replay --error ERROR",
)
DEAD_LETTERING = Cause(
    "dead-lettering-much",
    26,
    "warn",
    "many records settle without being done: they go to the dead-letter topic, or the poison "
    "policy drops them; from half of the records on this is a fail",
    "pause (app.pause(), keyshared pause), mend the cause, then replay the dead letters with "
    "keyshared dlq replay --error ERROR; dropped records are lost to this group",
)
LOOP_HELD = Cause(
    "loop-held",
    28,
    "warn",
    "the owner thread stood still for seconds and goes on now: nothing was polled, handed out or "
    "committed meanwhile; beyond max.poll.interval.ms the group takes the partitions away",
    "where the process stood still, look at stops and pauses of the machine, swap, and C calls "
    "that keep the interpreter lock; where the owner thread was held, make the callback that it "
    "was in faster",
)
REBALANCE = Cause(
    "rebalance-in-progress",
    6,
    "warn",
    "the group gives out its partitions anew, and nothing is fetched meanwhile; a member that "
    "died keeps its own until session.timeout.ms is over",
    "wait; where it does not end, find the member that does not answer the group "
    "(keyshared doctor names the members), or that revokes for too long",
)
NO_PARTITIONS = Cause(
    "no-partitions",
    7,
    "warn",
    "the group has given this member no partition: most often there are more members than "
    "partitions",
    "nothing, if it is a reserve; else run fewer members with more workers in each, which need no "
    "more partitions",
)
DLQ_REFUSING = Cause(
    "dlq-refusing",
    8,
    "fail",
    "dead letters are not written: their records stay unsettled, and their keys wait",
    "do what the error asks for: make the topic, grant WRITE on it, or raise its largest message; "
    "the letters are sent again by themselves",
)
DLQ_LIMIT = Cause(
    "dlq-limit",
    9,
    "fail",
    "too much of a partition went to the dead-letter topic, so it is stopped (dlq_limit)",
    "mend the cause, then lift the limit (app.lift_dlq_limit()) or restart",
)
KEY_UNREADABLE = Cause(
    "key-unreadable",
    10,
    "fail",
    "the key of a record cannot be read just now, so its partition waits from there on: what "
    "follows may be of the same key",
    "do what the reason says: bring the schema registry back, register the schema, or let key= and "
    "key_schema= name the format that the records have; it is tried again by itself",
)
HANDLER_STUCK = Cause(
    "handler-stuck",
    11,
    "fail",
    "a handler runs past the ack timeout and cannot be ended from outside: its key waits",
    "see in the stack where it hangs, and give that call a timeout; workers='process' can be ended",
)
KEY_BLOCKED = Cause(
    "key-blocked",
    12,
    "fail",
    "a record has failed as often as it may, and blocks its key until somebody decides",
    "mend the handler and restart, or say what becomes of the record (app.release(), app.drop(), "
    "app.dead_letter())",
)
WORKER_ABSENT = Cause(
    "worker-absent",
    13,
    "fail",
    "records wait for a worker that was declared and is not there",
    "start the worker, or give its range or filter to another one",
)
HANDLER_SLOW = Cause(
    "handler-slow",
    14,
    "warn",
    "a handler has been running one record for long: its key waits",
    "see in the stack what it waits for, and give that call a timeout; ack_timeout bounds an "
    "attempt",
)
KEY_DIVERTED = Cause(
    "key-diverted",
    15,
    "warn",
    "all that comes of a key goes to the dead-letter topic unrun (on_exhausted='divert')",
    "mend the handler, then release the key (app.release()) and replay its letters",
)
SET_FULL = Cause(
    "metadata-full",
    16,
    "warn",
    "the settled set of a partition has no room for more in the commit metadata, so nothing more "
    "of it starts until older records settle",
    "find what holds the position: the oldest record of the partition; or raise the broker's "
    "offset.metadata.max.bytes and keep fewer gaps open",
)
SLOT_DRAINING = Cause(
    "slot-draining",
    17,
    "warn",
    "a slot has moved to another worker, and waits for a record that still runs at the old one",
    "wait for that record; where it hangs, see where its handler stands",
)
RETRY_WAITING = Cause(
    "retry-waiting",
    18,
    "warn",
    "a key waits for the next attempt of a record that fails again and again",
    "see the error; what it calls may be away. With on_exhausted= and attempts= it is decided what "
    "becomes of the record in the end",
)
PAUSED = Cause(
    "paused-by-hand",
    19,
    "warn",
    "partitions are paused by hand: nothing is fetched from them",
    "whoever has paused them resumes them (app.resume())",
)
BEATS_FAILING = Cause(
    "beats-failing",
    24,
    "warn",
    "what it says of itself is not written to the topic of the group view, so it is silent to the "
    "others; records are consumed all the same",
    "do what the error asks for: make the topic, or grant WRITE and READ on it; it is tried again "
    "by itself",
)
HOT_KEY = Cause(
    "hot-key",
    20,
    "warn",
    "a key gets more records than one worker runs, one after the other: its partition is held "
    "back, or most of a backlog that grows is of it; more workers gain nothing, and other keys go "
    "on",
    "make the handler of that key faster: a coroutine can wait for several calls at once, and a "
    "batch handler takes several of its records at once; or give its records finer keys (keyshared "
    "advise)",
)
WINDOW_FULL = Cause(
    "window-full",
    21,
    "warn",
    "the backlog grows while workers are idle: what is received and cannot run yet fills the "
    "window, so nothing else is fetched",
    "see what the records wait for (closed keys, slow records), or raise window_records",
)
WORKERS_LIMIT = Cause(
    "workers-limit",
    22,
    "warn",
    "the backlog grows, and all workers are busy",
    "give it more workers (app.scale()), or make the handler faster; computing handlers want "
    "workers='process'",
)
BROKER_LIMIT = Cause(
    "broker-limit",
    23,
    "warn",
    "the backlog grows, workers are idle and the window has room: less is fetched than is written",
    "look at the brokers and the network; more fetching: fetch.message.max.bytes, "
    "queued.max.messages.kbytes; more members fetch in parallel",
)

CAUSES: tuple[Cause, ...] = (
    *(LOOP_SILENT, BROKERS_AWAY, COORDINATOR_LOST, RIGHT_REFUSED),
    *(COMMIT_FAILING, COMMIT_UNANSWERED),
    *(MOST_ATTEMPTS_FAIL, DLQ_REFUSING, DLQ_LIMIT, KEY_UNREADABLE, HANDLER_STUCK),
    *(KEY_BLOCKED, WORKER_ABSENT, DEAD_LETTERING, LOOP_HELD),
    *(REBALANCE, NO_PARTITIONS, HANDLER_SLOW, KEY_DIVERTED, SET_FULL, SLOT_DRAINING),
    *(RETRY_WAITING, PAUSED, BEATS_FAILING, HOT_KEY, WINDOW_FULL, WORKERS_LIMIT, BROKER_LIMIT),
)
"""In order of repair."""
