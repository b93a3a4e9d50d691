"""The judge: rules on order, loss, repetition, overlap and commits.

A *lane* is one key in one topic; a record without a key is a lane of its own. A record is *settled*
by a handler call that ended ``ok`` or ``dropped``, by a reported ``dropped``, or by a dead letter.
The dead letter must be acknowledged or read back. Only records that were produced or attempted
exist. Therefore offsets of transaction markers and compaction gaps never count as missing.

Each count is a statement about every trace. In the examples ``10[`` is the start of the record at
offset 10, ``]10`` its end ``ok``, ``!10`` its end ``failed``. All records are of one lane, except
when marked as in ``10a`` and ``11b``.

``order_violations``: records of a keyed lane that a record of higher offset (same partition)
    overtook, or that an incarnation went back to. A record is overtaken when the other starts while
    it is unsettled and not running. An incarnation goes back when it starts a settled record after
    a higher one, without a new assignment in between.
    Valid: ``10[ !10 10[ ]10 11[ ]11``; ``11a[ 10b[ ]10b ]11a``; after a crash ``10[ ]10 11[`` then
    ``10[ ]10 11[ ]11`` in the next incarnation.
    Invalid: ``11[ ]11 10[ ]10``; ``10[ !10 11[ ]11 10[ ]10``; ``10[ ]10 11[ ]11 10[`` in one.
``lost``: records that were produced and never settled.
    Valid: all produced were settled, by any incarnation. Invalid: ``!10`` and nothing else.
``duplicates``: attempts that start after their record was settled, and dead letters of a record
    that has another one or ended ``ok``.
    Valid: ``10[ !10 10[ ]10``; ``10[`` cut by a kill, then ``10[ ]10``. Invalid: ``10[ ]10 10[``.
    ``duplicates_by_incarnation`` counts them by the incarnation that repeated.
    ``duplicates_after_commit`` are those that an accepted commit already covered, which not even a
    crash excuses. All others are within the bound for a hard kill: the records that were settled
    since the last accepted commit.
``overlaps``: attempts that start while another one of their lane is running, in this incarnation or
    any other. An attempt that a kill cut short ends with its incarnation's last event.
    Valid: ``10[ ]10 11[ ]11``; ``10a[ 11b[ ]10a ]11b``. Invalid: ``10[ 11[ ]10 ]11``.
``commits_past_unsettled``: commits whose position or settled set covered a record that was not
    settled when the commit was sent.
    Valid: ``]10 ]12``, then position 11 with the set 12. Invalid: position 12, or the set 11-12.
``commit_sequence_falls``: commits with a position below an earlier one. The earlier one was sent by
    the same incarnation in the same assignment, or accepted by the broker from any member.
    Valid: 11, 11, 14. Invalid: 11, 14, 12. The judge does not know deliberate rewinds of the group.
``commits_without_ownership``: commits for a partition that their sender had given up, had lost, or
    had not yet been assigned. Incarnations that never reported ownership are not examined.

The rules are those of Kafka's own ``verifiable_consumer``, Jepsen's Kafka workload, Decaton's
processor test suite and franz-go's commit audit. They apply to one record of events.

A dead letter that was read back without a timed acknowledgement counts as settled from the earliest
possible moment. A commit in the gap up to its acknowledgement is not detected.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import DROPPED, FAILED, OK, MemoryLedger
from kafka_keyshared.observability.audit.trace import (
    NEVER,
    Trace,
    TracedAttempt,
    TracedCommit,
    Trail,
    build,
)

EXAMPLES = 5


@dataclass
class RuleFinding:
    """How often a rule was broken, with the first few cases as text."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, *words: object) -> None:
        """Count one case; ``words`` are joined only if it is among the first few."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(" ".join(map(str, words)))


@dataclass
class JudgedTotals:
    """The totals of the run, so that a clean judgement of an empty run is visible."""

    produced: int = 0
    attempts: int = 0
    failed_attempts: int = 0
    unfinished_attempts: int = 0
    ok: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    commits: int = 0
    accepted_commits: int = 0
    incarnations: int = 0


@dataclass
class Judgement:
    """The findings of the judge; the docstring of this module defines each rule."""

    order_violations: RuleFinding = field(default_factory=RuleFinding)
    lost: RuleFinding = field(default_factory=RuleFinding)
    duplicates: RuleFinding = field(default_factory=RuleFinding)
    overlaps: RuleFinding = field(default_factory=RuleFinding)
    commits_past_unsettled: RuleFinding = field(default_factory=RuleFinding)
    commit_sequence_falls: RuleFinding = field(default_factory=RuleFinding)
    commits_without_ownership: RuleFinding = field(default_factory=RuleFinding)
    duplicates_after_commit: RuleFinding = field(default_factory=RuleFinding)
    duplicates_by_incarnation: dict[str, int] = field(default_factory=dict)
    totals: JudgedTotals = field(default_factory=JudgedTotals)

    def findings(self) -> dict[str, RuleFinding]:
        """Return the seven rules by name; ``duplicates_after_commit`` is part of one of them."""
        return {
            "order_violations": self.order_violations,
            "lost": self.lost,
            "duplicates": self.duplicates,
            "overlaps": self.overlaps,
            "commits_past_unsettled": self.commits_past_unsettled,
            "commit_sequence_falls": self.commit_sequence_falls,
            "commits_without_ownership": self.commits_without_ownership,
        }

    def counts(self) -> dict[str, int]:
        """Return the count of each of the seven rules."""
        return {name: finding.count for name, finding in self.findings().items()}

    @property
    def clean(self) -> bool:
        """Whether every count is 0."""
        return not any(self.counts().values())

    def lines(self) -> list[str]:
        """Return the judgement as lines of text: each count, and under it its first cases."""
        lines = []
        for name, finding in self.findings().items():
            lines.append(f"{name}: {finding.count:,}")
            lines += [f"    {example}" for example in finding.examples]
        return lines


def judge(ledgers: Iterable[MemoryLedger]) -> Judgement:
    """Judge a run by all its ledgers (producer, every incarnation, dead letters read back).

    :raises ValueError: two ledgers of one incarnation, or an end without its start.
    """
    trace = build(ledgers)
    judgement = Judgement()
    judgement.totals = _totals(trace)
    for trail in trace.all_trails():
        if trail.produced and trail.settled == NEVER:
            judgement.lost.add(trail, _last_seen(trail))
    _judge_duplicates(trace, judgement)
    for lane in trace.lanes():
        _judge_overlaps(lane, judgement.overlaps)
        if len(lane) > 1:
            for part in _by_partition(lane):
                _judge_order(trace, part, judgement.order_violations)
    for partition, commits in trace.commits.items():
        _judge_coverage(trace, partition, commits, judgement.commits_past_unsettled)
        _judge_sequence(trace, partition, commits, judgement.commit_sequence_falls)
        for commit in commits:
            if not trace.owned(commit.incarnation, partition, commit.sent):
                judgement.commits_without_ownership.add(_describe(partition, commit))
    return judgement


def _totals(trace: Trace) -> JudgedTotals:
    totals = JudgedTotals(incarnations=len(trace.incarnations))
    for trail in trace.all_trails():
        outcomes = [attempt.outcome for attempt in trail.attempts]
        totals.produced += trail.produced
        totals.attempts += len(outcomes)
        totals.failed_attempts += outcomes.count(FAILED)
        totals.unfinished_attempts += outcomes.count(None)
        if OK in outcomes:
            totals.ok += 1
        elif trail.drops or DROPPED in outcomes:
            totals.dropped += 1
        elif trail.settled != NEVER:
            totals.dead_lettered += 1
    for commits in trace.commits.values():
        totals.commits += len(commits)
        totals.accepted_commits += sum(commit.accepted_at != NEVER for commit in commits)
    return totals


def _last_seen(trail: Trail) -> str:
    if not trail.attempts:
        return "was produced and never started"
    last = trail.attempts[-1]
    how = "was cut short" if last.outcome is None else "failed"
    return f"was last started in {last.incarnation} (attempt {len(trail.attempts)}), which {how}"


def _judge_duplicates(trace: Trace, judgement: Judgement) -> None:
    by_incarnation: Counter[str] = Counter()
    for trail in trace.all_trails():
        letters = max(trail.found, len(trail.acknowledged or ()))
        if not letters and (not trail.attempts or trail.attempts[-1].start <= trail.done):
            continue
        # Not >=, because on a coarse clock an attempt may start and end at the same time.
        again = [a for a in trail.attempts if a.start > trail.done]
        for attempt in again:
            by_incarnation[attempt.incarnation] += 1
            judgement.duplicates.add(trail, "was settled and started again in", _who(attempt))
            for commit in trace.commits.get(trail.partition, ()):
                if commit.accepted_at <= attempt.start and commit.covers(trail.offset):
                    judgement.duplicates_after_commit.add(
                        trail, "started again in", _who(attempt), "although covered by the",
                        _describe(trail.partition, commit),
                    )  # fmt: skip
                    break
        ended_ok = any(attempt.outcome == OK for attempt in trail.attempts)
        if letters + ended_ok > 1 and letters and not again:
            also = " and ended ok" if ended_ok else ""
            judgement.duplicates.add(trail, f"has {letters} dead letter(s){also}")
    judgement.duplicates_by_incarnation = dict(by_incarnation)


def _judge_overlaps(lane: list[Trail], finding: RuleFinding) -> None:
    if len(lane) == 1 and len(lane[0].attempts) == 1:
        return
    runs = [(a.start, a.end, trail, a) for trail in lane for a in trail.attempts]
    runs.sort(key=lambda run: run[0])
    _, busy_until, busy, holder = runs[0]
    for start, end, trail, attempt in runs[1:]:
        if start < busy_until:
            finding.add(trail, "started in", _who(attempt), "while", busy, "ran in", _who(holder))
        if end > busy_until:
            busy_until, busy, holder = end, trail, attempt


def _by_partition(lane: list[Trail]) -> Iterator[list[Trail]]:
    """Split a lane whose key was in several partitions; order is promised within each."""
    parts: dict[TopicPartition, list[Trail]] = {}
    for trail in lane:
        parts.setdefault(trail.partition, []).append(trail)
    for part in parts.values():
        part.sort(key=lambda trail: trail.offset)
        yield part


def _judge_order(trace: Trace, part: list[Trail], finding: RuleFinding) -> None:
    """Judge the attempted records of one lane in one partition, sorted by offset."""
    starts = sorted(
        ((a.start, trail.offset, a, trail) for trail in part for a in trail.attempts),
        key=lambda start: start[0],
    )
    earliest_later = NEVER
    for trail in reversed(part):
        first = trail.attempts[0].start
        if earliest_later < first:
            finding.add(trail, "first started after a later record of its lane had")
        elif earliest_later < trail.settled and _overtaken(trail, starts):
            finding.add(trail, "was waiting when a later record of its lane started")
        earliest_later = min(earliest_later, first)
    _judge_going_back(trace, starts, finding)


def _overtaken(trail: Trail, starts: list[tuple[int, int, TracedAttempt, Trail]]) -> bool:
    """Return whether a later record started while this one was unsettled and not running."""
    idle_from = trail.attempts[0].end
    bounds = [(attempt.start, attempt.end) for attempt in trail.attempts[1:]]
    for begin, end in [*bounds, (trail.settled, trail.settled)]:
        idle_until = min(begin, trail.settled)
        at = bisect_left(starts, idle_from, key=lambda start: start[0])
        while at < len(starts) and starts[at][0] < idle_until:
            if starts[at][1] > trail.offset:
                return True
            at += 1
        idle_from = max(idle_from, end)
    return False


def _judge_going_back(
    trace: Trace, starts: list[tuple[int, int, TracedAttempt, Trail]], finding: RuleFinding
) -> None:
    if all(a[1] <= b[1] for a, b in itertools.pairwise(starts)):
        return
    highest: dict[tuple[str, int], int] = {}
    for start, offset, attempt, trail in starts:
        epoch = trace.epoch(attempt.incarnation, trail.partition, start)
        run = (attempt.incarnation, epoch)
        before = highest.get(run, -1)
        # A record that was not settled yet was overtaken, and is counted as such.
        if offset < before and trail.settled <= start:
            finding.add(trail, "started in", _who(attempt), "after offset", before, "had")
        highest[run] = max(before, offset)


def _judge_coverage(
    trace: Trace, partition: TopicPartition, commits: list[TracedCommit], finding: RuleFinding
) -> None:
    trails = sorted(trace.trails.get(partition, {}).values(), key=lambda trail: trail.offset)
    offsets = [trail.offset for trail in trails]
    settled = [trail.settled for trail in trails]
    all_settled_by = []
    latest = 0
    for when in settled:
        latest = max(latest, when)
        all_settled_by.append(latest)
    for commit in commits:
        spans = [(0, bisect_left(offsets, commit.position))]
        latest = all_settled_by[spans[0][1] - 1] if spans[0][1] else 0
        for first, last in commit.settled:
            span = bisect_left(offsets, first), bisect_left(offsets, last + 1)
            latest = max(latest, max(settled[slice(*span)], default=0))
            spans.append(span)
        if latest > commit.sent:
            open_ = next(
                t for span in spans for t in trails[slice(*span)] if t.settled > commit.sent
            )
            finding.add(_describe(partition, commit), "covers the unsettled", open_)


def _judge_sequence(
    trace: Trace, partition: TopicPartition, commits: list[TracedCommit], finding: RuleFinding
) -> None:
    by_answer = sorted(commits, key=lambda commit: commit.accepted_at)
    answered = 0
    accepted = -1
    sent: dict[tuple[str, int], int] = {}
    for commit in commits:
        while answered < len(by_answer) and by_answer[answered].accepted_at <= commit.sent:
            accepted = max(accepted, by_answer[answered].position)
            answered += 1
        run = (commit.incarnation, trace.epoch(commit.incarnation, partition, commit.sent))
        before = max(accepted, sent.get(run, -1))
        if commit.position < before:
            finding.add(_describe(partition, commit), "came after a commit of position", before)
        sent[run] = max(commit.position, sent.get(run, -1))


def _who(attempt: TracedAttempt) -> str:
    return f"{attempt.incarnation} (thread {attempt.worker})"


def _describe(partition: TopicPartition, commit: TracedCommit) -> str:
    beyond = sum(last - first + 1 for first, last in commit.settled)
    carried = f" with {beyond:,} settled beyond it" if beyond else ""
    return f"commit of {partition} at position {commit.position}{carried} by {commit.incarnation}"
