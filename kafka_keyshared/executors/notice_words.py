"""Words for each kind of fact that the core reports.

Each function returns the text of one kind of fact. :mod:`.notice_text` has the table with their
log levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import facts
from kafka_keyshared.core.contract.facts import BlockedLane, OrderResult, WaitsFor
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.keys.fixed_lanes import WHOLE_KEY
from kafka_keyshared.core.telemetry.failure_kinds import (
    KINDS_MAX,
    in_short,
    kind_of,
    named_kind,
    one_line,
)
from kafka_keyshared.model import About, counted, in_words, named_key

IS_AN_ERROR = "and on_unmatched='error'"
"""Part of the text of a halt for an unmatched record, which distinguishes it from others."""


class FactWords(NamedTuple):
    """The text of a fact; ``follows`` is a consequence, which is true only while it is new."""

    text: str
    follows: str = ""


def place_of(about: About) -> str:
    """Return the place of a record, as lines name it."""
    return f"{about.partition}@{about.offset}"


def _record(about: About) -> str:
    return f"{place_of(about)} ({named_key(about.key)})"


def _attempts(attempts: int, failure: Failure | None) -> str:
    error = "" if failure is None else f", last: {in_short(failure)}"
    return f"{counted(attempts, 'attempt')}{error}"


def _cure(*, dlq: bool) -> str:
    """Return the advice for blocked keys, with or without a dead-letter topic."""
    if dlq:
        orders = "app.unblock(), app.drop() or app.dead_letter()"
        return f"Mend the handler and restart, or say what becomes of it ({orders})"
    return "Mend the handler and restart, or give a dead-letter topic (dlq=True)"


# --- failed attempts and closed lanes ---


_FOLLOWS: Mapping[Disposition, str] = {
    Disposition.DEAD_LETTER: "it goes to the dead-letter topic",
    Disposition.BLOCK: "its key is blocked",
    Disposition.ARCHIVE: "a copy goes to the dead-letter topic, then its key is blocked",
    Disposition.DIVERT: "its key is diverted to the dead-letter topic",
    Disposition.DROP: "it is dropped",
}


def attempt_failed(fact: facts.AttemptFailed) -> FactWords:
    """Return the words for failed attempts."""
    failure, about = fact.failure, fact.about
    if fact.delay is not None:
        follows = f"it runs again in {fact.delay:.3g} s"
    else:
        follows = _FOLLOWS[fact.follows]
    text = f": {one_line(failure.message)}" if failure.message else ""
    last = f" (the last of {KINDS_MAX} kinds logged with a traceback)" if fact.last_kind else ""
    most = "" if fact.attempts is None else f" of {fact.attempts}"
    return FactWords(
        f"{_record(about)}, attempt {fact.attempt}{most}: {named_kind(kind_of(failure))}{text}",
        f"; {follows}{last}",
    )


def record_dead_lettered(fact: facts.RecordDeadLettered) -> FactWords:
    """Return the words for dead letters."""
    at = f" as {fact.at}" if fact.at else ""
    attempts = _attempts(fact.attempts, fact.failure)
    return FactWords(f"{_record(fact.about)} went to the dead-letter topic{at} ({attempts})")


def record_diverted(fact: facts.RecordDiverted) -> FactWords:
    """Return the words for records of diverted lanes."""
    return FactWords(
        f"{_record(fact.about)} went to the dead-letter topic unrun: its key is diverted"
    )


def dead_letter_refused(fact: facts.DeadLetterRefused) -> FactWords:
    """Return the words for dead letters that were not written."""
    return FactWords(
        f"dead letter of {_record(fact.about)} was not written (try {fact.tries}): {fact.error}",
        f"; the record stays unsettled and its key waits, next try in {fact.delay:.0f} s",
    )


def lane_diverted(fact: facts.LaneDiverted) -> FactWords:
    """Return the words for diversions."""
    attempts = _attempts(fact.attempts, fact.failure)
    return FactWords(
        f"{named_key(fact.about.key)} is diverted from {place_of(fact.about)} on: it failed "
        f"({attempts}); until it is unblocked, its later records go to the dead-letter topic "
        "without an attempt"
    )


_WHY_BLOCKED = {
    Disposition.DEAD_LETTER: "its handler asked for a dead letter",
    Disposition.DIVERT: "it is diverted in another partition",
}


def lane_blocked(fact: facts.LaneBlocked) -> FactWords:
    """Return the words for blocked lanes."""
    key = fact.about.key
    whole = key is WHOLE_KEY
    what = "everything" if whole else f"key {key!r:.80}"
    others = "the subscription is one lane, so nothing goes on" if whole else "other keys go on"
    why = _WHY_BLOCKED.get(fact.failure.disposition, "it failed")
    return FactWords(
        f"{what} is blocked at {place_of(fact.about)}: {why} "
        f"({_attempts(fact.attempts, fact.failure)}); {others}. {_blocked_cure(fact)}"
    )


def _blocked_cure(fact: facts.LaneBlocked) -> str:
    if fact.archived:
        return "Its copy is in the dead-letter topic; mend the handler and restart, or unblock it"
    if fact.diverted is not None:
        return (
            f"It is not diverted, because {fact.diverted} keys of its partition are: unblock "
            "one of them, or mend the handler and restart"
        )
    return _cure(dlq=fact.dlq)


def lanes_still_blocked(fact: facts.LanesStillBlocked) -> FactWords:
    """Return the words for reminders of blocked lanes."""
    names = ", ".join(map(_blocked_lane, fact.oldest))
    left = fact.count - len(fact.oldest)
    more = f" and {left:,} more" if left else ""
    keys = "1 key is" if fact.count == 1 else f"{fact.count:,} keys are"
    minutes = f"{fact.seconds / 60:.0f} min"
    return FactWords(
        f"{keys} blocked, the oldest for {minutes}: {names}{more}. {_cure(dlq=fact.dlq)}"
    )


def _blocked_lane(lane: BlockedLane) -> str:
    key = "no key" if lane.about.key is None else f"{lane.about.key!r:.80}"
    why = "" if lane.failure is None else f" ({named_kind(kind_of(lane.failure))})"
    return f"{key} at {place_of(lane.about)}{why}"


_ORDERED = {
    Disposition.RETRY: "is unblocked",
    Disposition.DROP: "is dropped",
    Disposition.DEAD_LETTER: "goes to the dead-letter topic",
}


def lane_order_done(fact: facts.LaneOrderDone) -> FactWords:
    """Return the words for executed lane orders."""
    return FactWords(f"by order: {order_text(fact)}")


def diversion_ended(fact: facts.DiversionEnded) -> FactWords:
    """Return the words for ended diversions."""
    return FactWords(order_text(fact))


def order_text(result: OrderResult) -> str:
    """Return the answer to an executed order for a lane."""
    if isinstance(result, facts.DiversionEnded):
        return f"{named_key(result.key)} is diverted no more; no record of it was here"
    behind = f"; {counted(result.waiting, 'record')} behind it" if result.waiting else ""
    about = result.about
    where = str(about.partition) if about.offset < 0 else place_of(about)
    done = _ORDERED[result.follows]
    return f"{where} ({named_key(about.key)}), {result.state} {done}{behind}"


# --- keys that cannot be read ---


def key_unreadable(fact: facts.KeyUnreadable) -> FactWords:
    """Return the words for unreadable keys."""
    dropped = fact.follows is Disposition.DROP
    how = "is dropped" if dropped else "counts as without a key"
    return FactWords(f"{place_of(fact.about)} {how}: {fact.reason}")


def unreadable_key_blocked(fact: facts.UnreadableKeyBlocked) -> FactWords:
    """Return the words for blocked unreadable keys."""
    instead = (
        "choose undecodable='dead_letter' or 'drop'"
        if fact.dlq
        else "give a dead-letter topic (dlq=True), or choose undecodable='drop'"
    )
    return FactWords(
        f"{place_of(fact.about)} has no readable key and is blocked: {fact.reason}; other keys go "
        f"on. Mend what reads the key and restart, {instead}"
    )


def key_not_yet_readable(fact: facts.KeyNotYetReadable) -> FactWords:
    """Return the words for keys that are read again."""
    return FactWords(
        f"the key of {place_of(fact.about)} cannot be read yet: {fact.reason}",
        f"; its partition waits, next try in {fact.delay:.1f} s",
    )


def keys_missing(fact: facts.KeysMissing) -> FactWords:
    """Return the words for records without a key."""
    order = (
        "they run in a lane of their own (null_keys='one-lane'), in no order with the others"
        if fact.one_lane
        else "they run in no order (null_keys='any')"
    )
    if not fact.mixed:
        return FactWords(
            f"topic {fact.topic}: none of the first {fact.records:,} records has a key by the key= "
            f"setting, so {order}; see that key= names a field or header that the records have"
        )
    return FactWords(
        f"topic {fact.topic}: {counted(fact.records, 'record')} with no key by the key= setting "
        "beside others that have one; those without a key have no such field or no value, as a "
        f"delete or a tombstone, and {order}. Set key='record' where the record's own key will do, "
        "or name a field or header that every record has; null_keys='reject' sends them to the "
        "undecodable policy"
    )


# --- running records ---


def record_runs_long(fact: facts.RecordRunsLong) -> FactWords:
    """Return the words for long-running records."""
    what, time = _record(fact.about), in_words(fact.seconds)
    if fact.member:
        return FactWords(f"{fact.worker} has had {what} for {time}, unsettled; its key waits")
    waits = {
        None: "waits",
        False: "waits; others go on",
        True: "and the others of that worker wait",
    }[fact.others_wait]
    return FactWords(f"{what} has been running on {fact.worker} for {time}; its key {waits}")


def long_run_ended(fact: facts.LongRunEnded) -> FactWords:
    """Return the words for ends of long runs."""
    return FactWords(f"{_record(fact.about)} ended after {in_words(fact.seconds)}")


def record_stuck(fact: facts.RecordStuck) -> FactWords:
    """Return the words for stuck records."""
    text = (
        f"{_record(fact.about)} is stuck: it has been running on {fact.worker} for longer than the "
        f"ack timeout of {fact.ack_timeout:g} s, and nothing can end it from outside"
    )
    if fact.halts:
        return FactWords(text)
    waits = (
        "its key waits until it ends, the others go on"
        if fact.goes_on
        else f"all keys of {fact.worker} wait until it ends"
    )
    return FactWords(f"{text}; {waits}")


# --- backpressure ---


def settled_set_full(fact: facts.SettledSetFull) -> FactWords:
    """Return the words for full settled sets."""
    return FactWords(
        f"{fact.partition}: {Reason.SET_FULL}; until older records settle, only those before "
        f"{fact.ceiling} start"
    )


def outage_began(fact: facts.OutageBegan) -> FactWords:
    """Return the words for an outage of a dependency that begins."""
    at = f" at {fact.where}" if fact.where else ""
    message = f": {fact.message}" if fact.message else ""
    return FactWords(
        f"subscription {fact.subscription} waits for a dependency: attempts of several keys fail "
        f"with {fact.error}{at}{message}",
        "; no attempt is used up, and one record at a time is tried until it succeeds",
    )


def outage_ended(fact: facts.OutageEnded) -> FactWords:
    """Return the words for an outage of a dependency that ends."""
    probes = counted(fact.probes, "probe")
    return FactWords(
        f"subscription {fact.subscription} goes on after {in_words(fact.seconds)}: "
        f"{fact.error} has stopped ({probes} failed)"
    )


def dlq_limit_reached(fact: facts.DlqLimitReached) -> FactWords:
    """Return the words for dead-letter limits."""
    if fact.records is None:
        what = f"{counted(fact.dead_letters, 'record')} in a row"
    else:
        what = f"{fact.dead_letters:,} of the last {fact.records:,} records"
    return FactWords(
        f"{fact.partition} is stopped: {Reason.DLQ_LIMIT} ({what}, dlq_limit). No further "
        "record of it starts. Its commits stay, and other partitions go on. Fix the cause, "
        "then lift the limit (app.lift_dlq_limit()) or restart"
    )


def blocked_records_full(fact: facts.BlockedRecordsFull) -> FactWords:
    """Return the words for partitions stopped by closed lanes."""
    return FactWords(
        f"{fact.partition} is stopped: records behind blocked, diverted or stuck keys fill their "
        f"part of the window (half of window_share); the {named_key(fact.key)} holds "
        f"{counted(fact.records, 'record')} of it. Other partitions go on"
    )


def waiting_records_full(fact: facts.WaitingRecordsFull) -> FactWords:
    """Return the words for partitions held back."""
    most = f"{fact.partition}: {Reason.WAITING}; {counted(fact.records, 'record')}"
    key, head, seconds = named_key(fact.key), "", in_words(fact.seconds or 0.0)
    if fact.head is not None:
        head = _record(fact.head)
    if fact.cause is WaitsFor.RETRY:
        again = "" if fact.seconds is None else f" (next try in {seconds})"
        return FactWords(f"{most} of the {key} are behind a failure", f"{again}; {_OTHERS_GO_ON}")
    waits = {
        WaitsFor.WORKER: "of it are of slots that have no worker",
        WaitsFor.RUNNING: f"of it wait for {head}, which has been running for {seconds}",
        WaitsFor.EACH_OTHER: f"of the {key} wait for each other, because it gets more than one "
        "worker can do (give its records finer keys, or make its handler faster)",
        WaitsFor.DETACHED: f"of it wait for {head}, which is detached",
    }[fact.cause]
    return FactWords(f"{most} {waits}; {_OTHERS_GO_ON}")


_OTHERS_GO_ON = "other partitions go on"


def records_shed(fact: facts.RecordsShed) -> FactWords:
    """Return the words for dropped records."""
    records = counted(fact.records, "record")
    return FactWords(f"{fact.worker} is full: {records} dropped (delivery='at-most-once')")


def record_held(fact: facts.RecordHeld) -> FactWords:
    """Return the words for records held for a worker."""
    return FactWords(
        f"{_record(fact.about)} is held: no worker that takes it is there; it waits until one joins"
    )


def record_unmatched(fact: facts.RecordUnmatched) -> FactWords:
    """Return the words for records without a worker."""
    which = "a record" if fact.about is None else _record(fact.about)
    return FactWords(
        f"{which} is for none of the workers that subscription {fact.subscription!r} was declared "
        f"to have, {IS_AN_ERROR}; nothing of it is settled. Give a worker its range or filter, or "
        "choose on_unmatched='skip' or 'hold'"
    )


# --- workers ---


def worker_evicted(fact: facts.WorkerEvicted) -> FactWords:
    """Return the words for evicted workers."""
    text = (
        f"{fact.worker} could not be restarted in {fact.heartbeats} heartbeats; its keys go to the "
        f"{counted(fact.others, 'worker')} left, and its leased records "
    )
    if not fact.written_off:
        return FactWords(f"{text}run again")
    records = counted(fact.records, "record")
    return FactWords(f"{text}(at most {records}) count as done and are lost")


def last_worker_dead(fact: facts.LastWorkerDead) -> FactWords:
    """Return the words for the loss of the last worker."""
    return FactWords(f"{fact.worker} could not be restarted and there is no other worker")


def worker_departed(fact: facts.WorkerDeparted) -> FactWords:
    """Return the words for departures."""
    return FactWords(
        f"{fact.worker} has left; its keys go to the other workers, and its unsettled records run "
        "again"
    )


def workers_all_left(fact: facts.WorkersAllLeft) -> FactWords:
    """Return the words for the departure of all workers."""
    have = "has" if len(fact.workers) == 1 else "have"
    return FactWords(
        f"{', '.join(fact.workers)} {have} left, and no other worker is present: no record runs, "
        "and unsettled records run again at the next start"
    )


def slot_state_lost(fact: facts.SlotStateLost) -> FactWords:
    """Return the words for lost state."""
    why = "its thread is gone for good" if fact.error is None else f"release() failed: {fact.error}"
    slots = counted(fact.slots, "slot")
    return FactWords(
        f"{fact.worker}: the state of {slots} is lost, so their keys start without state: {why}"
    )
