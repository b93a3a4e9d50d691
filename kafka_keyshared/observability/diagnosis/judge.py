"""The diagnosis function, a pure function of the status for all displays.

Each cause has a rule here, and a minimum duration, below which the state is normal. A false finding
would cost the reader's trust.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.failure_status import FailureRate
from kafka_keyshared.model import counted, does, in_words, some
from kafka_keyshared.observability.diagnosis import causes
from kafka_keyshared.observability.diagnosis.causes import CAUSES
from kafka_keyshared.observability.diagnosis.finding_text import found, key_of, place
from kafka_keyshared.observability.diagnosis.findings import Diagnosis, Finding
from kafka_keyshared.observability.diagnosis.hot import hot_keys
from kafka_keyshared.observability.diagnosis.limits import limits
from kafka_keyshared.status import LaneStatus, Status, SubscriptionStatus, WorkerStatus

SILENT = 10.0
"""Seconds without a turn of the control loop. Each heartbeat (0.5 s) makes a status."""
AWAY = 2.0
"""Seconds without a broker. The client reconnects in less."""
COORDINATOR = 10.0
"""Seconds without a coordinator. A failover takes less."""
COMMITS_IN_A_ROW = 2
"""Failed commits in a row. The first one is retried at once."""
REFUSED = 2.0
"""Seconds that a right is missing. A change of the access-control lists takes less."""
UNANSWERED = 10.0
"""Seconds that a commit is in flight. A coordinator holds one back for 5 s at most."""
REBALANCING = 5.0
"""Seconds of a rebalance. A normal one takes less, unless a revoke uses its whole deadline."""
RESERVE = 10.0
"""Seconds without a partition. A join may take two rounds."""
LETTERS = 2
"""Refusals of one dead letter. A restarting broker refuses one. A permanent one is enough."""
UNREAD = 3.0
"""Seconds that a key is unreadable. The first retry comes after one second."""
ABSENT = 10.0
"""Seconds that records wait for a worker. A restarting worker is back earlier."""
SLOW = 30.0
"""Seconds that one record runs, as in the log."""
FULL = 5.0
"""Seconds that a settled set has no room."""
DRAINING = 5.0
"""Seconds that a slot drains while records wait for it."""
RETRYING = 10.0
"""Seconds since the first failure of a record that waits for another attempt."""
REPORTS = 15.0
"""Seconds without a written report, after which other instances see this one as silent."""

HELD_FOR = 60.0
"""Seconds for which a past standstill stays in the diagnosis."""

NAMED = 3
ALL = 0.995
"""Share from which a text says "all"."""

_COORDINATED = frozenset({"", "up", "init", "term"})
"""States of the client in which it has its coordinator, or has not requested one."""

_RANK = {cause.code: place for place, cause in enumerate(CAUSES)}


def diagnose(status: Status, *, keys: bool = False) -> Diagnosis:
    """Return all findings, in order of repair.

    With ``keys`` the texts name the keys of records, otherwise only their slots.
    """
    if status.phase != "running":
        return Diagnosis()
    every = [each for rule in _RULES for each in rule(status)]
    for sub in status.subscriptions:
        every += [each for rule in _SUB_RULES for each in rule(sub)]
    every += limits(status, {each.code for each in every})
    every.sort(key=lambda each: (each.level != "fail", _RANK[each.code]))
    return Diagnosis(findings=tuple(each if keys else _hidden(each) for each in every))


def _hidden(finding: Finding) -> Finding:
    """Return the finding without its key. The sentence names the slot instead."""
    if finding.key is None:
        return finding
    named, hidden = key_of(finding.key, finding.slot), key_of(None, finding.slot)
    return msgspec.structs.replace(
        finding, key=None, sentence=finding.sentence.replace(named, hidden)
    )


# --- the member as a whole ---


def _loop(status: Status) -> Iterator[Finding]:
    if status.silent_seconds >= SILENT and status.rebalance_seconds is None:
        text = f"the control loop has run no round for {in_words(status.silent_seconds)}"
        yield found(causes.LOOP_SILENT, text, seconds=status.silent_seconds)


def _brokers(status: Status) -> Iterator[Finding]:
    away = status.brokers_away_seconds
    if away is not None and away >= AWAY:
        why = f" ({status.client_error})" if status.client_error else ""
        text = f"no broker has answered for {in_words(away)}{why}"
        yield found(causes.BROKERS_AWAY, text, seconds=away)
        return
    client = status.client
    if (
        client is not None
        and client.coordinator not in _COORDINATED
        and client.coordinator_seconds >= COORDINATOR
    ):
        text = (
            f"the group's coordinator has not been reached for "
            f"{in_words(client.coordinator_seconds)} ({client.coordinator})"
        )
        yield found(causes.COORDINATOR_LOST, text, seconds=client.coordinator_seconds)


def _commits(status: Status) -> Iterator[Finding]:
    away = status.brokers_away_seconds
    if away is not None and away >= AWAY:
        return
    seconds = status.commit_failing_seconds
    if seconds is not None and status.commit_failures >= COMMITS_IN_A_ROW:
        coordinator = "COORD" in status.commit_error.upper()
        cause = causes.COORDINATOR_LOST if coordinator else causes.COMMIT_FAILING
        text = (
            f"{counted(status.commit_failures, 'commit')} in a row failed, for "
            f"{in_words(seconds)}: {status.commit_error}"
        )
        yield found(cause, text, seconds=seconds, count=status.commit_failures)
    waiting = status.commit_waiting_seconds
    if waiting is not None and waiting >= UNANSWERED:
        text = f"a commit has waited for its answer for {in_words(waiting)}"
        yield found(causes.COMMIT_UNANSWERED, text, seconds=waiting)


def _rights(status: Status) -> Iterator[Finding]:
    for each in status.refused:
        if each.seconds >= REFUSED:
            text = f"{each.text}, for {in_words(each.seconds)}"
            yield found(causes.RIGHT_REFUSED, text, topic=each.topic, seconds=each.seconds)


def _group(status: Status) -> Iterator[Finding]:
    seconds = status.rebalance_seconds
    if seconds is not None:
        if seconds >= REBALANCING:
            text = f"a rebalance has been in progress for {in_words(seconds)}"
            yield found(causes.REBALANCE, text, seconds=seconds)
        return
    if status.joined and not status.partitions:
        since = status.rebalanced[-1].at if status.rebalanced else status.started_at
        seconds = status.taken_at - since
        if seconds >= RESERVE:
            text = f"this member has had no partition for {in_words(seconds)}"
            yield found(causes.NO_PARTITIONS, text, seconds=seconds)


def _held(status: Status) -> Iterator[Finding]:
    """Yield a finding for each reason that holds partitions back and needs an operator."""
    for reason, cause, after in (
        (Reason.DLQ_LIMIT, causes.DLQ_LIMIT, 0.0),
        (Reason.SET_FULL, causes.SET_FULL, FULL),
        (Reason.BY_HAND, causes.PAUSED, 0.0),
    ):
        those = [
            (seconds, each)
            for each in status.partitions
            for held, seconds in zip(each.held_back, each.held_seconds, strict=False)
            if held == reason and seconds >= after
        ]
        if not those:
            continue
        those.sort(key=lambda pair: -pair[0])
        seconds, first = those[0]
        names = some((f"{each.topic}-{each.partition}" for _, each in those), NAMED)
        text = f"nothing more of {names} is fetched, for {in_words(seconds)}: {reason}"
        yield found(
            cause,
            text,
            topic=first.topic,
            partition=first.partition,
            offset=first.safe,
            seconds=seconds,
            count=len(those),
        )


def _reports(status: Status) -> Iterator[Finding]:
    seconds = status.report_failing_seconds
    if seconds is not None and seconds >= REPORTS:
        text = f"the group has had no report of this instance for {in_words(seconds)}: "
        yield found(causes.REPORT_FAILING, text + status.report_error, seconds=seconds)


def _standstill(status: Status) -> Iterator[Finding]:
    held = status.standstill
    if held is None or held.ago_seconds > HELD_FOR:
        return
    who = "the process" if held.process else "the owner thread"
    where = "" if held.process or not held.where else f" in {held.where}"
    running = f"; {some(held.records, NAMED)} ran in that time" if held.records else ""
    text = (
        f"{who} stood still{where} for {in_words(held.seconds)}, until "
        f"{in_words(held.ago_seconds)} ago{running}"
    )
    yield found(causes.LOOP_HELD, text, seconds=held.seconds)


# --- one subscription ---


def _rates(sub: SubscriptionStatus) -> Iterator[Finding]:
    for each in sub.failure_rates:
        cause = causes.MOST_ATTEMPTS_FAIL if each.what == "attempts" else causes.DEAD_LETTERING
        of = f" of topic {each.topic}" if each.topic else ""
        if each.partition is not None:
            of = f" of {each.topic}-{each.partition}"
        text = _share_of_attempts(each, of) if each.what == "attempts" else _given_up(each, of)
        text += f"; it began {in_words(each.seconds)} ago"
        if each.error:
            part = "all" if each.error_share > ALL else f"{each.error_share:.0%}"
            at = f" at {each.where}" if each.where else ""
            message = f": {each.message}" if each.message else ""
            text += f"; {part} with {each.error}{at}{message}"
        yield found(
            cause,
            text,
            sub=sub,
            level=each.level,
            topic=each.topic,
            partition=each.partition,
            seconds=each.seconds,
            count=each.total,
        )


def _dependency(sub: SubscriptionStatus) -> Iterator[Finding]:
    away = sub.waiting
    if away is None:
        return
    at = f" at {away.where}" if away.where else ""
    message = f": {away.message}" if away.message else ""
    text = (
        f"everything waits for a dependency of the handler, for {in_words(away.seconds)}: several "
        f"keys failed with {away.error}{at}{message}; "
        f"{counted(away.probes, 'probe')} failed since"
    )
    yield found(causes.DEPENDENCY_WAITING, text, sub=sub, seconds=away.seconds)


def _share_of_attempts(each: FailureRate, of: str) -> str:
    verb = "were postponed" if each.put_off else "failed"
    if not each.ok:
        return (
            f"no attempt{of} has succeeded for {in_words(each.window_seconds)}: "
            f"{each.count:,} {verb}"
        )
    return (
        f"{each.share:.0%} of the attempts{of} in the last {each.window_seconds:.0f} s {verb} "
        f"({each.count:,} of {each.count + each.ok:,})"
    )


def _given_up(each: FailureRate, of: str) -> str:
    return (
        f"{each.share:.0%} of the records{of} that settled in the last {each.window_seconds:.0f} s "
        f"were dead-lettered or dropped ({each.count:,} of {each.count + each.ok:,})"
    )


def _unread(sub: SubscriptionStatus) -> Iterator[Finding]:
    those = [each for each in sub.unreadable_keys if each.seconds >= UNREAD]
    if not those:
        return
    first = max(those, key=lambda each: each.seconds)
    text = (
        f"the key of {place(first)} cannot be read, for {in_words(first.seconds)}: {first.error}; "
        f"{counted(first.records, 'record')} of its partition {does(first.records, 'wait')}"
    )
    yield found(
        causes.KEY_UNREADABLE, text, sub=sub, at=first, seconds=first.seconds, count=len(those)
    )


def _letters(sub: SubscriptionStatus) -> Iterator[Finding]:
    those = [each for each in sub.closed if each.refused >= LETTERS or each.refused_for_good]
    if not those:
        return
    first = max(those, key=lambda each: each.refused)
    text = (
        f"the dead letter of {place(first)} ({key_of(first.key, first.slot)}) was refused "
        f"{counted(first.refused, 'time')}: {first.refusal}"
    )
    yield found(causes.DLQ_REFUSING, text, sub=sub, at=first, count=len(those))


def _blocked(sub: SubscriptionStatus) -> Iterator[Finding]:
    if not sub.blocked:
        return
    first = sub.blocked[0]
    text = (
        f"{key_of(first.key, first.slot)} is blocked by {place(first)} for "
        f"{in_words(first.seconds)}: {first.error}"
    )
    stack = next((each.stack for each in sub.closed if place(each) == place(first)), "")
    count = sub.lanes.get("blocked", 1)
    yield found(causes.KEY_BLOCKED, text, sub=sub, at=first, count=count, stack=stack)


def _diverted(sub: SubscriptionStatus) -> Iterator[Finding]:
    count = sub.lanes.get("diverted", 0)
    those = [each for each in sub.closed if each.state == "diverted"]
    if those:
        first = those[0]
        text = f"{key_of(first.key, first.slot)} is diverted to the dead-letter topic"
        yield found(causes.KEY_DIVERTED, text, sub=sub, at=first, count=count)


def _retrying(sub: SubscriptionStatus) -> Iterator[Finding]:
    those = [each for each in sub.closed if each.state == "waiting" and each.seconds >= RETRYING]
    if not those:
        return
    first = max(those, key=_age)
    due = "" if first.due_seconds is None else f", next try in {in_words(first.due_seconds)}"
    text = (
        f"{key_of(first.key, first.slot)} waits for another attempt of {place(first)}, which has "
        f"failed for {in_words(first.seconds)} ({counted(first.attempts, 'attempt')}{due}): "
        f"{first.error}"
    )
    count = sub.lanes.get("waiting", len(those))
    yield found(causes.RETRY_WAITING, text, sub=sub, at=first, count=count, stack=first.stack)


def _age(lane: LaneStatus) -> float:
    return lane.seconds


def _running(sub: SubscriptionStatus) -> Iterator[Finding]:
    for cause, those, what in (
        (causes.HANDLER_STUCK, [each for each in sub.workers if each.stuck], "is stuck"),
        (
            causes.HANDLER_SLOW,
            [each for each in sub.workers if not each.stuck and _runs(each) >= SLOW],
            "runs long",
        ),
    ):
        those.sort(key=_runs, reverse=True)
        first = those[0] if those else None
        if first is None or first.running is None:
            continue
        run = first.running
        text = (
            f"{place(run)} ({key_of(run.key, run.slot)}) {what}: on {first.name} for "
            f"{in_words(run.seconds)}"
        )
        text += f", {run.where}" if run.where else ""
        text += _detached(sub, first)
        yield found(
            cause, text, sub=sub, at=run, worker=first.name, count=len(those), stack=run.stack
        )


def _detached(sub: SubscriptionStatus, worker: WorkerStatus) -> str:
    """Return a text about the records that wait for a worker's detached record, if it has one."""
    if not worker.detached or worker.running is None or sub.shared is None:
        return ""
    at = place(worker.running)
    waiting = next((each.waiting for each in sub.shared.detached if place(each) == at), None)
    if waiting is None:
        return ""
    return (
        f"; it is detached: {counted(waiting, 'record')} of its key {does(waiting, 'wait')}, other "
        "keys go on"
    )


def _runs(worker: WorkerStatus) -> float:
    return 0.0 if worker.running is None else worker.running.seconds


def _absent(sub: SubscriptionStatus) -> Iterator[Finding]:
    if not sub.away or sub.away_at is None or sub.away_seconds < ABSENT:
        return
    topic, partition, offset = sub.away_at
    who = some(sub.missing, NAMED) if sub.missing else "a worker that takes them"
    text = (
        f"{counted(sub.away, 'record')} from {topic}-{partition}@{offset} on "
        f"{does(sub.away, 'wait')} for {who}, for {in_words(sub.away_seconds)}"
    )
    yield found(
        causes.WORKER_ABSENT,
        text,
        sub=sub,
        topic=topic,
        partition=partition,
        offset=offset,
        worker=sub.missing[0] if sub.missing else "",
        seconds=sub.away_seconds,
        count=sub.away,
    )


def _draining(sub: SubscriptionStatus) -> Iterator[Finding]:
    those = [
        (each, worker)
        for worker in sub.workers
        for each in worker.draining
        if each.blocked and each.seconds >= DRAINING
    ]
    if not those:
        return
    slot, worker = max(those, key=lambda pair: pair[0].seconds)
    run = worker.running
    what = f", which runs {place(run)}" if run is not None else ""
    text = (
        f"slot {slot.slot:#06x} has been draining at {worker.name}{what} for "
        f"{in_words(slot.seconds)}; {counted(slot.blocked, 'record')} "
        f"{does(slot.blocked, 'wait')} for it at {slot.owner or 'no worker'}"
    )
    yield found(
        causes.SLOT_DRAINING,
        text,
        sub=sub,
        slot=slot.slot,
        worker=worker.name,
        seconds=slot.seconds,
        count=len(those),
    )


_RULES: tuple[Callable[[Status], Iterator[Finding]], ...] = (
    *(_loop, _brokers, _rights, _commits, _group, _held, _reports, _standstill, hot_keys),
)
_SUB_RULES: tuple[Callable[[SubscriptionStatus], Iterator[Finding]], ...] = (
    *(_dependency, _rates, _unread, _letters, _blocked, _diverted, _retrying, _running),
    *(_absent, _draining),
)
