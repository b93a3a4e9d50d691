"""Facts that the core reports, with the level and the text of their log lines."""

from __future__ import annotations

from dataclasses import replace

from kafka_keyshared.core.contract import commit_facts, facts
from kafka_keyshared.core.contract.facts import Fact, WaitsFor
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.keys.fixed_lanes import WHOLE_KEY
from kafka_keyshared.executors.notice_text import Level
from kafka_keyshared.model import About
from tests.support.records import P0, P1

A = About(P0, 7, b"a")
NO_KEY = About(P0, 7)
ALL = About(P0, 7, WHOLE_KEY)
STACK = '  File "/app/app.py", line 12, in handle\n'
FAILED = Failure(Disposition.ERROR, "KeyError", "'id'", STACK, 0, where="app.py:12")
GIVEN_UP = Failure(Disposition.DEAD_LETTER, "Rejected", "no", "", 0)
ELSEWHERE = Failure(Disposition.DIVERT, "Diverted", "it is", "", 0)
BLOCKED = facts.LaneBlocked(A, 1, FAILED, False, None, False, False)
I, W, E = Level.INFO, Level.WARNING, Level.ERROR  # noqa: E741 - a column of the table

LINES: list[tuple[Fact, Level, str]] = [
    (
        facts.AttemptFailed(A, 1, 5, FAILED, Disposition.RETRY, 0.1),
        W,
        "orders-0@7 (key b'a'), attempt 1 of 5: KeyError at app.py:12: 'id'; it runs "
        "again in 0.1 s",
    ),
    (
        facts.AttemptFailed(NO_KEY, 5, 5, GIVEN_UP, Disposition.DEAD_LETTER),
        W,
        "orders-0@7 (no key), attempt 5 of 5: Rejected: no; it goes to the dead-letter topic",
    ),
    (
        facts.AttemptFailed(A, 5, 5, FAILED, Disposition.BLOCK),
        W,
        "orders-0@7 (key b'a'), attempt 5 of 5: KeyError at app.py:12: 'id'; its key is blocked",
    ),
    (
        facts.AttemptFailed(A, 5, 5, FAILED, Disposition.ARCHIVE),
        W,
        "orders-0@7 (key b'a'), attempt 5 of 5: KeyError at app.py:12: 'id'; a copy goes "
        "to the dead-letter topic, then its key is blocked",
    ),
    (
        facts.AttemptFailed(A, 5, 5, FAILED, Disposition.DIVERT),
        W,
        "orders-0@7 (key b'a'), attempt 5 of 5: KeyError at app.py:12: 'id'; its key is "
        "diverted to the dead-letter topic",
    ),
    (
        facts.AttemptFailed(A, 5, 5, FAILED, Disposition.DROP, last_kind=True),
        W,
        "orders-0@7 (key b'a'), attempt 5 of 5: KeyError at app.py:12: 'id'; it is "
        "dropped (the last of 50 kinds logged with a traceback)",
    ),
    (
        facts.RetryRequested(A, 1, 5, FAILED, Disposition.RETRY, 3.0),
        I,
        "orders-0@7 (key b'a'), attempt 1 of 5: KeyError at app.py:12: 'id'; it runs again in 3 s",
    ),
    (
        facts.AttemptFailed(A, 7, None, FAILED, Disposition.RETRY, 60.0),
        W,
        "orders-0@7 (key b'a'), attempt 7: KeyError at app.py:12: 'id'; it runs again in 60 s",
    ),
    (
        facts.OutageBegan("default", "ConnectionError", "app.py:9", "refused"),
        E,
        "subscription default waits for a dependency: attempts of several keys fail with "
        "ConnectionError at app.py:9: refused; no attempt is used up, and one record at a time is "
        "tried until it succeeds",
    ),
    (
        facts.OutageEnded("default", "ConnectionError", 63.0, 1),
        W,
        "subscription default goes on after 63 s: ConnectionError has stopped (1 probe failed)",
    ),
    (
        facts.RecordDeadLettered(A, "orders.dlq-1@3", 1, FAILED),
        W,
        "orders-0@7 (key b'a') went to the dead-letter topic as orders.dlq-1@3 (1 "
        "attempt, last: KeyError at app.py:12: 'id')",
    ),
    (
        facts.RecordDeadLettered(A, "", 2, None),
        W,
        "orders-0@7 (key b'a') went to the dead-letter topic (2 attempts)",
    ),
    (
        facts.RecordDiverted(A),
        W,
        "orders-0@7 (key b'a') went to the dead-letter topic unrun: its key is diverted",
    ),
    (
        facts.DeadLetterRefused(A, 2, "no room", 4.0),
        E,
        "dead letter of orders-0@7 (key b'a') was not written (try 2): no room; the "
        "record stays unsettled and its key waits, next try in 4 s",
    ),
    (
        facts.LaneDiverted(A, 1, FAILED),
        E,
        "key b'a' is diverted from orders-0@7 on: it failed (1 attempt, last: KeyError at"
        " app.py:12: 'id'); until it is unblocked, its later records go to the dead-letter"
        " topic without an attempt",
    ),
    (
        BLOCKED,
        E,
        "key b'a' is blocked at orders-0@7: it failed (1 attempt, last: KeyError at "
        "app.py:12: 'id'); other keys go on. Mend the handler and restart, or give a "
        "dead-letter topic (dlq=True)",
    ),
    (
        replace(BLOCKED, about=ALL, dlq=True),
        E,
        "everything is blocked at orders-0@7: it failed (1 attempt, last: KeyError at "
        "app.py:12: 'id'); the subscription is one lane, so nothing goes on. Mend the "
        "handler and restart, or say what becomes of it (app.unblock(), app.drop() or "
        "app.dead_letter())",
    ),
    (
        replace(BLOCKED, failure=GIVEN_UP, archived=True),
        E,
        "key b'a' is blocked at orders-0@7: its handler asked for a dead letter (1 "
        "attempt, last: Rejected: no); other keys go on. Its copy is in the dead-letter "
        "topic; mend the handler and restart, or unblock it",
    ),
    (
        replace(BLOCKED, failure=ELSEWHERE, diverted=16),
        E,
        "key b'a' is blocked at orders-0@7: it is diverted in another partition (1 "
        "attempt, last: Diverted: it is); other keys go on. It is not diverted, because "
        "16 keys of its partition are: unblock one of them, or mend the handler and "
        "restart",
    ),
    (
        facts.LanesStillBlocked(1, 130.0, [facts.BlockedLane(A, FAILED)], dlq=True),
        E,
        "1 key is blocked, the oldest for 2 min: b'a' at orders-0@7 (KeyError at "
        "app.py:12). Mend the handler and restart, or say what becomes of it "
        "(app.unblock(), app.drop() or app.dead_letter())",
    ),
    (
        facts.LanesStillBlocked(1_200, 60.0, [facts.BlockedLane(NO_KEY, None)], dlq=False),
        E,
        "1,200 keys are blocked, the oldest for 1 min: no key at orders-0@7 and 1,199 "
        "more. Mend the handler and restart, or give a dead-letter topic (dlq=True)",
    ),
    (
        facts.LaneOrderDone(A, "blocked", Disposition.RETRY, 1),
        I,
        "by order: orders-0@7 (key b'a'), blocked is unblocked; 1 record behind it",
    ),
    (
        facts.LaneOrderDone(About(P0, -1, b"a"), "diverted", Disposition.RETRY, 0),
        I,
        "by order: orders-0 (key b'a'), diverted is unblocked",
    ),
    (
        facts.LaneOrderDone(A, "blocked", Disposition.DROP, 0),
        I,
        "by order: orders-0@7 (key b'a'), blocked is dropped",
    ),
    (
        facts.LaneOrderDone(A, "blocked", Disposition.DEAD_LETTER, 2),
        I,
        "by order: orders-0@7 (key b'a'), blocked goes to the dead-letter topic; 2 "
        "records behind it",
    ),
    (
        facts.DiversionEnded(b"a"),
        I,
        "key b'a' is diverted no more; no record of it was here",
    ),
    (
        facts.KeyUnreadable(NO_KEY, "no JSON", Disposition.RETRY),
        W,
        "orders-0@7 counts as without a key: no JSON",
    ),
    (
        facts.KeyUnreadable(NO_KEY, "no JSON", Disposition.DROP),
        W,
        "orders-0@7 is dropped: no JSON",
    ),
    (
        facts.UnreadableKeyBlocked(NO_KEY, "no JSON", dlq=False),
        E,
        "orders-0@7 has no readable key and is blocked: no JSON; other keys go on. Mend "
        "what reads the key and restart, give a dead-letter topic (dlq=True), or choose "
        "undecodable='drop'",
    ),
    (
        facts.UnreadableKeyBlocked(NO_KEY, "no JSON", dlq=True),
        E,
        "orders-0@7 has no readable key and is blocked: no JSON; other keys go on. Mend "
        "what reads the key and restart, choose undecodable='dead_letter' or 'drop'",
    ),
    (
        facts.KeyNotYetReadable(NO_KEY, "registry is down", 1.0),
        E,
        "the key of orders-0@7 cannot be read yet: registry is down; its partition waits,"
        " next try in 1.0 s",
    ),
    (
        facts.KeysMissing("orders", 1_000, mixed=False, one_lane=False),
        W,
        "topic orders: none of the first 1,000 records has a key by the key= setting, so "
        "they run in no order (null_keys='any'); see that key= names a field or header "
        "that the records have",
    ),
    (
        facts.KeysMissing("orders", 1, mixed=True, one_lane=True),
        W,
        "topic orders: 1 record with no key by the key= setting beside others that have "
        "one; those without a key have no such field or no value, as a delete or a "
        "tombstone, and they run in a lane of their own (null_keys='one-lane'), in no "
        "order with the others. Set key='record' where the record's own key will do, or "
        "name a field or header that every record has; null_keys='reject' sends them to "
        "the undecodable policy",
    ),
    (
        facts.RecordRunsLong(
            A, ("default", 0, 3, 0), "worker-0", 30.0, member=False, others_wait=True
        ),
        W,
        "orders-0@7 (key b'a') has been running on worker-0 for 30 s; its key and the "
        "others of that worker wait",
    ),
    (
        facts.RecordRunsLong(
            A, ("default", 0, 3, 0), "worker-0", 30.0, member=False, others_wait=False
        ),
        W,
        "orders-0@7 (key b'a') has been running on worker-0 for 30 s; its key waits; others go on",
    ),
    (
        facts.RecordRunsLong(
            A, ("default", 0, 3, 0), "worker-0", 300.0, member=False, others_wait=None
        ),
        W,
        "orders-0@7 (key b'a') has been running on worker-0 for 5 min; its key waits",
    ),
    (
        facts.RecordRunsLong(
            A, ("default", 0, 3, 0), "member-0", 30.0, member=True, others_wait=None
        ),
        W,
        "member-0 has had orders-0@7 (key b'a') for 30 s, unsettled; its key waits",
    ),
    (
        facts.LongRunEnded(A, 45.0),
        I,
        "orders-0@7 (key b'a') ended after 45 s",
    ),
    (
        facts.RecordStuck(A, "worker-0", 30.0, goes_on=True),
        E,
        "orders-0@7 (key b'a') is stuck: it has been running on worker-0 for longer than "
        "the ack timeout of 30 s, and nothing can end it from outside; its key waits "
        "until it ends, the others go on",
    ),
    (
        facts.RecordStuck(A, "worker-0", 2.5, goes_on=False),
        E,
        "orders-0@7 (key b'a') is stuck: it has been running on worker-0 for longer than "
        "the ack timeout of 2.5 s, and nothing can end it from outside; all keys of "
        "worker-0 wait until it ends",
    ),
    (
        facts.SettledSetFull(P0, 120),
        I,
        "orders-0: its settled set has no room for more in the commit metadata; until "
        "older records settle, only those before 120 start",
    ),
    (
        facts.DlqLimitReached(P0, 1_000, None),
        E,
        "orders-0 is stopped: too many of its records went to the dead-letter topic "
        "(1,000 records in a row, dlq_limit). No further record of it starts. Its commits"
        " stay, and other partitions go on. Fix the cause, then lift the limit "
        "(app.lift_dlq_limit()) or restart",
    ),
    (
        facts.DlqLimitReached(P0, 2_501, 5_000),
        E,
        "orders-0 is stopped: too many of its records went to the dead-letter topic "
        "(2,501 of the last 5,000 records, dlq_limit). No further record of it starts. "
        "Its commits stay, and other partitions go on. Fix the cause, then lift the limit"
        " (app.lift_dlq_limit()) or restart",
    ),
    (
        facts.BlockedRecordsFull(P0, b"a", 40),
        E,
        "orders-0 is stopped: records behind blocked, diverted or stuck keys fill their "
        "part of the window (half of window_share); the key b'a' holds 40 records of it. "
        "Other partitions go on",
    ),
    (
        facts.WaitingRecordsFull(P0, 40, WaitsFor.WORKER),
        I,
        "orders-0: records of it that cannot run yet fill too much of the window; 40 "
        "records of it are of slots that have no worker; other partitions go on",
    ),
    (
        facts.WaitingRecordsFull(P0, 40, WaitsFor.RUNNING, b"a", A, 12.0),
        I,
        "orders-0: records of it that cannot run yet fill too much of the window; 40 "
        "records of it wait for orders-0@7 (key b'a'), which has been running for 12 s; "
        "other partitions go on",
    ),
    (
        facts.WaitingRecordsFull(P0, 40, WaitsFor.EACH_OTHER, b"a"),
        I,
        "orders-0: records of it that cannot run yet fill too much of the window; 40 "
        "records of the key b'a' wait for each other, because it gets more than one "
        "worker can do (give its records finer keys, or make its handler faster); other "
        "partitions go on",
    ),
    (
        facts.WaitingRecordsFull(P0, 40, WaitsFor.DETACHED, b"a", A),
        I,
        "orders-0: records of it that cannot run yet fill too much of the window; 40 "
        "records of it wait for orders-0@7 (key b'a'), which is detached; other "
        "partitions go on",
    ),
    (
        facts.WaitingRecordsFull(P0, 40, WaitsFor.RETRY, b"a", seconds=3.0),
        I,
        "orders-0: records of it that cannot run yet fill too much of the window; 40 "
        "records of the key b'a' are behind a failure (next try in 3 s); other partitions"
        " go on",
    ),
    (
        facts.WaitingRecordsFull(P0, 40, WaitsFor.RETRY, None),
        I,
        "orders-0: records of it that cannot run yet fill too much of the window; 40 "
        "records of the no key are behind a failure; other partitions go on",
    ),
    (
        facts.RecordsShed("worker-0", 12),
        W,
        "worker-0 is full: 12 records dropped (delivery='at-most-once')",
    ),
    (
        facts.RecordHeld(A),
        W,
        "orders-0@7 (key b'a') is held: no worker that takes it is there; it waits until one joins",
    ),
    (
        facts.RecordUnmatched(A, "default"),
        E,
        "orders-0@7 (key b'a') is for none of the workers that subscription 'default' was"
        " declared to have, and on_unmatched='error'; nothing of it is settled. Give a "
        "worker its range or filter, or choose on_unmatched='skip' or 'hold'",
    ),
    (
        facts.RecordUnmatched(None, "default"),
        E,
        "a record is for none of the workers that subscription 'default' was declared to "
        "have, and on_unmatched='error'; nothing of it is settled. Give a worker its "
        "range or filter, or choose on_unmatched='skip' or 'hold'",
    ),
    (
        facts.WorkerEvicted("worker-0", 6, 1, 12, written_off=False),
        E,
        "worker-0 could not be restarted in 6 heartbeats; its keys go to the 1 worker "
        "left, and its leased records run again",
    ),
    (
        facts.WorkerEvicted("worker-0", 6, 2, 12, written_off=True),
        E,
        "worker-0 could not be restarted in 6 heartbeats; its keys go to the 2 workers "
        "left, and its leased records (at most 12 records) count as done and are lost",
    ),
    (
        facts.LastWorkerDead("worker-0"),
        E,
        "worker-0 could not be restarted and there is no other worker",
    ),
    (
        facts.WorkerDeparted("member-0"),
        I,
        "member-0 has left; its keys go to the other workers, and its unsettled records run again",
    ),
    (
        facts.WorkersAllLeft(["member-0"]),
        W,
        "member-0 has left, and no other worker is present: no record runs, and unsettled"
        " records run again at the next start",
    ),
    (
        facts.WorkersAllLeft(["member-0", "member-1"]),
        W,
        "member-0, member-1 have left, and no other worker is present: no record runs, "
        "and unsettled records run again at the next start",
    ),
    (
        facts.SlotStateLost("worker-0", 3, None),
        E,
        "worker-0: the state of 3 slots is lost, so their keys start without state: its "
        "thread is gone for good",
    ),
    (
        facts.SlotStateLost("worker-0", 1, "OSError: disk"),
        E,
        "worker-0: the state of 1 slot is lost, so their keys start without state: "
        "release() failed: OSError: disk",
    ),
    (
        commit_facts.CommitFailed([P0, P1], "no coordinator", refused=False),
        W,
        "commit for orders-0, orders-1 failed: no coordinator; its positions are sent again",
    ),
    (
        commit_facts.CommitFailed([P0], "unknown member", refused=True),
        W,
        "commit for orders-0 was refused: unknown member; a rebalance has completed; "
        "positions of partitions that stay here are committed again, other unsettled "
        "records run at their new owners",
    ),
    (
        commit_facts.SettledSetCut(P0),
        W,
        "orders-0: the settled set does not fit in the commit metadata; its lowest part "
        "is written, the other settled records would run again at the next start",
    ),
    (
        commit_facts.MetadataLimitLowered(1_024, None, without_sets=False),
        W,
        "the brokers take 1024 bytes of commit metadata, so records ahead of a slow "
        "record are held back until the settled set fits; set "
        "offset.metadata.max.bytes=4096 on the brokers",
    ),
    (
        commit_facts.MetadataLimitLowered(None, 90, without_sets=True),
        W,
        "the brokers refuse commit metadata of 90 characters, too few for a settled set: "
        "after every restart, also a clean one, records settled beyond the position run "
        "again; set offset.metadata.max.bytes=4096 on the brokers",
    ),
    (
        commit_facts.PositionRemoved(P0, 40, 10),
        W,
        "orders-0: retention has removed the log up to 40, past the committed position "
        "10; 30 offsets are gone, reading goes on at the start of the log",
    ),
    (
        commit_facts.MetadataIgnored(P0, "commit metadata ignored"),
        W,
        "orders-0: commit metadata ignored",
    ),
    (
        commit_facts.UncleanStops([P0, P1], [About(P0, 3), About(P1, 5)], 4),
        W,
        "orders-0, orders-1: the last owner ended without a clean stop; records that were"
        " likely running: orders-0@3, orders-1@5 (+4 more); starting with small batches, "
        "these records last",
    ),
    (
        commit_facts.SuspectsStarting([About(P0, each) for each in range(12)]),
        I,
        "orders-0@0, orders-0@1, orders-0@2, orders-0@3, orders-0@4, orders-0@5, "
        "orders-0@6, orders-0@7, orders-0@8, orders-0@9 and 2 more: 12 records starting "
        "that ran when the last owner ended",
    ),
    (
        commit_facts.ProgressRegained([P0, P1]),
        I,
        "orders-0, orders-1: assigned again, and no other member has committed; settled "
        "records do not run again",
    ),
]
