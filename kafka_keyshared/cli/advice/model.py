"""The derivation of advice from counts, without any I/O.

The baseline is one worker that runs all records one after another, each in the same time. A
speed-up is how many times sooner a given number of workers would be done.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from kafka_keyshared.cli.advice.count import WORKERS, Hot, Lanes, SampleCounts
from kafka_keyshared.cli.advice.sample import Sample
from kafka_keyshared.config.keys.sampled import TopicKeys
from kafka_keyshared.core.routing.loads import busiest
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import counted

SHOWN = (4, 16, 64)
"""The numbers of workers in the advice."""

WORTH = 1.5
"""The minimum factor over today's speed-up for the verdict ``helps``."""

GAIN = 1.25
"""Doubling the workers is advised while it speeds up by at least this factor."""

FEW = 3.0
"""A speed-up below this, without a hot key, is explained by few keys at a time."""

DENSE = 0.99
"""A log is reported as sparse when fewer than this fraction of its offsets hold records."""

SCOPES = ("partition", "topic", "subscription")


class FrequentKey(msgspec.Struct, kw_only=True):
    """A key with many records; ``key`` is None when only its hash is known."""

    key: str | None
    records: int
    share: float


class Scope(msgspec.Struct, kw_only=True):
    """The lanes under a scope of order.

    ``bound`` is the maximum speed-up with any number of workers, because the hottest lane runs one
    record at a time.
    """

    lanes: int
    hottest_share: float
    bound: float | None


class Today(msgspec.Struct, kw_only=True):
    """The maximum speed-up of plain consumers, one for each partition."""

    partitions: int
    speedup: float


class Lag(msgspec.Struct, kw_only=True):
    """The lag to be drained: of ``group``, or the whole topics when that is None.

    ``records`` is ``offsets`` less the share without records, as estimated from the sample.
    """

    group: str | None
    offsets: int
    records: int
    uncommitted_partitions: int


class Drain(msgspec.Struct, kw_only=True):
    """Seconds until the lag is drained; None when more records arrive than are processed."""

    ms_per_record: float
    today: float | None
    workers: dict[str, float | None]


class Advice(msgspec.Struct, kw_only=True):
    """The complete result of ``keyshared advise``. Shares and speed-ups count all records.

    ``key`` is the setting by which keys were read. ``unreadable_keys`` is the number of records
    left out of all counts because their key cannot be read. ``verdict`` is one of ``helps``,
    ``little``, ``one-key``, ``no-keys`` and ``no-records``.
    """

    verdict: str
    says: str
    topics: list[str]
    records: int
    complete: bool
    seconds: float
    keys: int
    keys_exact: bool
    null_keys: int
    key: str
    unreadable_keys: int
    hottest_share: float
    hottest_bound: float | None
    hottest_keys: list[FrequentKey]
    speedup: dict[str, float]
    speedup_in_window: dict[str, float]
    speedup_null_keys_one_lane: dict[str, float] | None
    unordered: dict[str, float]
    order_scope: dict[str, Scope]
    today: Today
    workers: int
    lag: Lag
    drain: Drain
    arrivals_per_s: float | None
    arrivals_from: str | None
    notes: list[str]
    code: str = ""


def speedups(tally: SampleCounts) -> dict[int, float]:
    """Return the speed-up by number of workers over the whole sample, on the real ring."""
    return {
        workers: ratio(tally.records, busiest(tally.loads(workers), tally.records, workers))
        for workers in WORKERS
    }


def windowed(tally: SampleCounts) -> dict[int, float]:
    """Return the speed-up when each window must end before the next one begins.

    An instance holds only its window of received, unsettled records. Therefore keys that come in
    bursts leave workers idle. The real window moves on record by record, so this is the worst case.
    """
    return {workers: ratio(tally.records, tally.window_steps[workers]) for workers in WORKERS}


def one_lane(tally: SampleCounts) -> dict[int, float]:
    """Return the speed-up when all records without a key are one lane, that of the empty key."""
    found = {}
    for workers in WORKERS:
        loads = tally.loads(workers)
        loads[tally.owner(slot_of(b""), workers)] += tally.null_keys
        found[workers] = ratio(tally.records, max(loads.values()))
    return found


def advise(
    tally: SampleCounts,
    sample: Sample,
    *,
    group: str | None,
    ms_per_record: float,
    key: str = "record",
    keys_seen: Mapping[str, TopicKeys] = MappingProxyType({}),
) -> Advice:
    """Return the advice for these counts.

    ``key`` is the setting by which keys were read. ``keys_seen`` has the results of reading them.
    """
    speedup, in_window = speedups(tally), windowed(tally)
    lanes = {scope: tally.lanes(scope) for scope in SCOPES}
    keys = lanes["subscription"]
    hottest = [_hot(each, tally.records) for each in keys.hottest[:5]]
    today = Today(
        partitions=len(sample.logs),
        speedup=ratio(tally.records, max(tally.partitions.values(), default=0)),
    )
    workers = recommended(in_window)
    density = tally.records / sample.offsets if sample.offsets else 1.0
    lag = lag_of(sample, group, density)
    advice = Advice(
        verdict="",
        says="",
        topics=list(dict.fromkeys(log.partition.topic for log in sample.logs)),
        records=tally.records,
        complete=sample.complete,
        seconds=round(sample.seconds, 1),
        keys=keys.lanes,
        keys_exact=tally.exact,
        null_keys=tally.null_keys,
        key=key,
        unreadable_keys=sum(each.without for each in keys_seen.values()),
        hottest_share=hottest[0].share if hottest else 0.0,
        hottest_bound=_bound(keys, tally.records),
        hottest_keys=hottest,
        speedup=_shown(speedup),
        speedup_in_window=_shown(in_window),
        speedup_null_keys_one_lane=_shown(one_lane(tally)) if tally.null_keys else None,
        unordered=_shown({n: ratio(tally.records, -(-tally.records // n)) for n in SHOWN}),
        order_scope={scope: _scope(lanes[scope], tally.records) for scope in SCOPES},
        today=msgspec.structs.replace(today, speedup=round(today.speedup, 2)),
        workers=workers,
        lag=lag,
        drain=drain(sample, lag, ms_per_record, in_window),
        arrivals_per_s=None if sample.arrivals is None else round(sum(sample.arrivals.values()), 1),
        arrivals_from=sample.arrivals_from,
        notes=[],
    )
    advice.verdict, advice.says = _verdict(advice, in_window[workers])
    advice.notes = [*_notes(advice, sample, density), *_key_notes(key, keys_seen)]
    return advice


def recommended(in_window: Mapping[int, float]) -> int:
    """Return the number of workers beyond which doubling gains little."""
    chosen = WORKERS[0]
    for fewer, more in itertools.pairwise(WORKERS):
        if in_window[more] < GAIN * in_window[fewer]:
            break
        chosen = more
    return chosen


def lag_of(sample: Sample, group: str | None, density: float) -> Lag:
    """Return the lag to be drained."""
    offsets = sum(log.lag for log in sample.logs)
    uncommitted = [log for log in sample.logs if log.committed is None and log.size]
    return Lag(
        group=group,
        offsets=offsets,
        records=round(offsets * min(1.0, density)),
        uncommitted_partitions=len(uncommitted) if group is not None else 0,
    )


def drain(sample: Sample, lag: Lag, ms_per_record: float, speedup: Mapping[int, float]) -> Drain:
    """Return how long draining takes, at the current arrival rate.

    Today each partition is drained separately; workers share all of them.
    """
    arrivals = sample.arrivals or {}
    rate = 1000 / ms_per_record
    part = lag.records / lag.offsets if lag.offsets else 1.0
    each = [
        _seconds(log.lag * part, rate - arrivals.get(log.partition, 0.0)) for log in sample.logs
    ]
    total = sum(arrivals.values())
    return Drain(
        ms_per_record=ms_per_record,
        today=None if None in each else _rounded(max((s for s in each if s), default=0.0)),
        workers={
            str(workers): _rounded(_seconds(lag.records, rate * speedup[workers] - total))
            for workers in SHOWN
        },
    )


def _seconds(records: float, per_second: float) -> float | None:
    if not records:
        return 0.0
    return records / per_second if per_second > 0 else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def ratio(records: int, steps: int) -> float:
    """Return the records per step; 0 without any step."""
    return records / steps if steps else 0.0


def _shown(found: Mapping[int, float]) -> dict[str, float]:
    return {str(workers): round(found[workers], 2) for workers in SHOWN}


def _bound(lanes: Lanes, records: int) -> float | None:
    return round(records / lanes.hottest[0].records, 2) if lanes.hottest else None


def _scope(lanes: Lanes, records: int) -> Scope:
    share = lanes.hottest[0].records / records if lanes.hottest else 0.0
    return Scope(lanes=lanes.lanes, hottest_share=_share(share), bound=_bound(lanes, records))


def _hot(hot: Hot, records: int) -> FrequentKey:
    name = None if hot.key is None else hot.key.decode("utf-8", "backslashreplace")
    return FrequentKey(key=name, records=hot.records, share=_share(hot.records / records))


def _share(share: float) -> float:
    """Return a share with four significant digits, so that a millionth does not become 0."""
    return float(f"{share:.4g}")


# --- as text ---


def _verdict(advice: Advice, best: float) -> tuple[str, str]:
    today, workers = advice.today, advice.workers
    if not advice.records and advice.unreadable_keys:
        return "no-keys", "the key of no record can be read by this setting"
    if not advice.records:
        return "no-records", (
            "there are no records, so the keys are unknown; try again when the topic has records"
        )
    if not advice.keys:
        return "no-keys", (
            "no record has a key, so there is no order per key to keep. Any number of workers "
            "helps; Kafka's share groups (KIP-932), or more partitions, do it without this package"
        )
    if advice.keys == 1 and not advice.null_keys:
        return "one-key", (
            "all records have the same key, and those of one key run one at a time, in order: no "
            "number of workers helps; choose a key with more values when producing"
        )
    most = f"{workers} workers in one process do up to {best:.1f} times the work of one consumer"
    against = f"{partitions(today)} {today.speedup:.1f} times at most"
    if best >= WORTH * today.speedup:
        return "helps", f"it helps: {most}; {against}"
    why = "because there are enough partitions"
    if advice.hottest_bound is not None and advice.hottest_bound < WORTH * today.speedup:
        why = f"because one key has {advice.hottest_share:.0%} of all records"
    elif best < FEW:
        why = "because too few keys are active at a time"
    return "little", (
        f"it helps little, {why}: {most}; {against}. What remains: a record that fails or is slow "
        "stops its own key, not its partition"
    )


def partitions(today: Today) -> str:
    """Return a text for today's speed-up."""
    if today.partitions == 1:
        return "one partition means one consumer:"
    return f"plain consumers, one for each of the {today.partitions:,} partitions, do"


def _notes(advice: Advice, sample: Sample, density: float) -> list[str]:
    notes: list[str] = []
    if not advice.records:
        return notes
    if not advice.keys_exact:
        notes.append(
            "there are too many keys to count each: their number is an estimate, good to about 1 %"
        )
    if 1 < advice.keys < max(SHOWN) and not advice.null_keys:
        notes.append(
            f"there are {advice.keys} keys: never more than {advice.keys} workers have work"
        )
    if density < DENSE:
        notes.append(
            f"only {density:.0%} of the offsets hold a record (compaction, or the markers of "
            "transactions): the lag in offsets is an upper bound, the times count records"
        )
    if advice.lag.uncommitted_partitions:
        notes.append(
            f"the group has committed nothing in {advice.lag.uncommitted_partitions} partitions: "
            "their whole log is counted as lag"
        )
    if None in (advice.drain.today, *advice.drain.workers.values()):
        notes.append(
            f"{advice.arrivals_per_s:,.0f} records/s arrive: 'never' means that more "
            "records arrive than are processed"
        )
    if sample.arrivals is None:
        notes.append("the arrival rate is unknown, so it counts as zero")
    return notes


def _key_notes(key: str, seen: Mapping[str, TopicKeys]) -> Iterator[str]:
    for topic, each in sorted(seen.items()):
        if each.mixed:
            yield (
                f"{topic}: {counted(each.keyless, 'record')} without a key by key={key!r} beside "
                f"{each.keyed:,} that have one: those without a key run in no order, a delete or a "
                "tombstone before an update, for instance. Set key='record' where the record's own "
                "key will do, or name a field or header that every record has"
            )
        elif each.keyless:
            yield f"{topic}: no record has a key by key={key!r}; see that the name is right"
        for reasons, what in (
            (each.unknown, "their partitions are paused until the setting is corrected"),
            (each.unread, "their partitions wait until the key can be read"),
            (each.broken, "they are handled by undecodable="),
        ):
            yield from _unreadable(topic, reasons, what)


def _unreadable(topic: str, reasons: Counter[str], what: str) -> Iterator[str]:
    for reason, count in reasons.most_common(1):
        many = counted(sum(reasons.values()), "key")
        yield f"{topic}: {many} unreadable, {what}: {reason} ({count:,} times)"
