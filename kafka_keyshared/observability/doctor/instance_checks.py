"""Checks of ``keyshared doctor`` on the status of an instance.

They find the records that the instance waits for.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared import status
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.model import TopicPartition, counted, does, in_words, some
from kafka_keyshared.observability.diagnosis.finding_text import key_of
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
)
from kafka_keyshared.observability.doctor.progress_checks import InstanceAnswer, Standing

NAMED = 5

_UNBLOCK = (
    "fix the handler and restart, which retries them; or configure a dead-letter topic "
    "(--dlq auto --dlq-create), to which they go after their attempts"
)
_UNHANG = (
    "give the calls in the handler a timeout, and find where it hangs: py-spy dump --pid PID of "
    "the instance; if records take that long, raise --held-after"
)

_RESUME = "resume it (app.resume()), or restart the instance"


def instance(url: str, seen: status.Status, group: str | None, held_after: float) -> Check:
    """Judge an instance by its status.

    ``group`` is the group that the doctor examines. A record that has run for ``held_after``
    seconds counts as hanging.
    """
    findings: list[DoctorFinding] = []
    if group is not None and seen.group != group:
        why = f"{url} is an instance of the group {seen.group}, not of {group}"
        cure = f"give the address of another instance, or ask about this group: -g {seen.group}"
        findings.append(DoctorFinding(FindingKind.OTHER_GROUP, CheckStatus.WARN, why, cure))
    if seen.phase != "running" or not seen.joined:
        what = "it has not been given partitions yet" if seen.phase == "running" else seen.phase
        why = f"the instance does not process yet, or any more: {what}"
        findings.append(
            DoctorFinding(FindingKind.NOT_READY, CheckStatus.WARN, why, "ask again in a moment")
        )
    for each in seen.subscriptions:
        findings += _blocked(each)
        findings += _running(each, held_after)
    return conclude("instance", _in_short(url, seen), findings)


def _in_short(url: str, seen: status.Status) -> str:
    workers = [each for own in seen.subscriptions for each in own.workers]
    lags = [each.lag for each in seen.partitions if each.lag is not None]
    words = [
        f"{url}: {seen.phase}",
        f"group {seen.group}",
        counted(len(seen.partitions), "partition"),
        f"{sum(each.running is not None for each in workers)} of "
        f"{counted(len(workers), 'worker')} busy",
    ]
    lanes = {
        state: sum(own.lanes.get(state, 0) for own in seen.subscriptions)
        for state in ("waiting", "stuck", "blocked")
    }
    words += [f"{counted(count, 'key')} {state}" for state, count in lanes.items() if count]
    if lags:
        words.append(f"lag {sum(lags):,}")
    if longest := max(
        ((each.running.seconds, each) for each in workers if each.running is not None),
        key=lambda pair: pair[0],
        default=None,
    ):
        words.append(f"the longest running record is {_record(longest[1])}")
    return "; ".join([", ".join(words), *_held_back(seen)])


def _blocked(of: status.SubscriptionStatus) -> list[DoctorFinding]:
    count = of.lanes.get("blocked", 0)
    if not count:
        return []
    names = [
        f"{key_of(each.key, each.slot)} at {each.topic}-{each.partition}@{each.offset} for "
        f"{in_words(each.seconds)} ({counted(each.attempts, 'attempt')}, last: {each.error})"
        for each in of.blocked[:NAMED]
    ]
    more = f" and {count - len(names):,} more" if count > len(names) else ""
    keys = "1 key is" if count == 1 else f"{count:,} keys are"
    why = f"{keys} blocked: {'; '.join(names)}{more}; nothing of them runs, and the position waits"
    return [DoctorFinding(FindingKind.KEY_BLOCKED, CheckStatus.FAIL, why, _UNBLOCK)]


def _running(of: status.SubscriptionStatus, held_after: float) -> list[DoctorFinding]:
    long = sorted(
        (
            (worker.running.seconds, worker)
            for worker in of.workers
            if worker.running is not None and worker.running.seconds >= held_after
        ),
        key=lambda pair: -pair[0],
    )
    if not long:
        return []
    names = some((_record(worker) + _others(worker) for _, worker in long), NAMED)
    why = f"{counted(len(long), 'record')} running for longer than {held_after:g} s: {names}"
    return [DoctorFinding(FindingKind.RECORD_RUNNING_LONG, CheckStatus.FAIL, why, _UNHANG)]


def told(
    seen: status.Status, group: str | None, standing: Iterable[Standing]
) -> dict[TopicPartition, InstanceAnswer]:
    """Return an instance's facts about positions that stand still, for its own partitions.

    An instance of another group gives none.
    """
    own = {TopicPartition(each.topic, each.partition): each for each in seen.partitions}
    return {
        each.partition: _told(seen, own[each.partition], each.position)
        for each in standing
        if each.partition in own and seen.group == group
    }


def _told(seen: status.Status, of: status.PartitionStatus, position: int) -> InstanceAnswer:
    """Return for how long a record has been the oldest unsettled one, and its state."""
    oldest = (of.topic, of.partition, position)
    # The record's own state matters more than the rest.
    for blocked in (each for own in seen.subscriptions for each in own.blocked):
        if (blocked.topic, blocked.partition, blocked.offset) == oldest:
            what = f"its key is blocked, for {in_words(blocked.seconds)} (last: {blocked.error})"
            return InstanceAnswer(blocked.seconds, what, _UNBLOCK, blocked=True)
    for worker in (each for own in seen.subscriptions for each in own.workers):
        run = worker.running
        if run is not None and (run.topic, run.partition, run.offset) == oldest:
            what = f"{worker.name} has been running it for {in_words(run.seconds)}"
            what += _others(worker)
            return InstanceAnswer(max(run.seconds, of.oldest_seconds), what, _UNHANG)
    log = "see its log, and what else it says below"
    if of.safe is not None and of.safe > position:
        what = f"all before {of.safe} is settled, and its commit has not come through"
        return InstanceAnswer(0.0, what, "see its log: it names a commit that fails")
    if of.fetched is not None and of.fetched > position:
        what = f"it waits, for a worker or its next attempt, for {in_words(of.oldest_seconds)}"
        return InstanceAnswer(of.oldest_seconds, what, log)
    what = "; ".join(("it has not fetched it", *of.held_back))
    if Reason.BY_HAND in of.held_back:
        return InstanceAnswer(0.0, what, _RESUME, by_hand=True)
    return InstanceAnswer(0.0, what, log)


def _held_back(seen: status.Status) -> list[str]:
    """Return the held-back partitions with reasons. A full window alone is no fault."""
    by_reason: dict[str, list[str]] = {}
    for each in seen.partitions:
        for reason in each.held_back:
            by_reason.setdefault(reason, []).append(f"{each.topic}-{each.partition}")
    return [
        f"nothing is fetched from {some(names)} for now: {reason}"
        for reason, names in by_reason.items()
    ]


def _record(worker: status.WorkerStatus) -> str:
    record = worker.running
    if record is None:
        return "none"
    where = f"{record.topic}-{record.partition}@{record.offset}"
    return f"{where} for {in_words(record.seconds)} on {worker.name}"


def _others(worker: status.WorkerStatus) -> str:
    """Return a text about the other keys of a worker that is busy with one record."""
    if worker.detached:
        return " (other keys go on)"
    waiting = worker.queued + worker.leased - worker.runs
    if waiting <= 0:
        return ""
    return f" ({counted(waiting, 'record')} {does(waiting, 'wait')} for it there)"
