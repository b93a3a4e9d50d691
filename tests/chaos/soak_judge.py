"""Judges a soak by its evidence alone: the contract, and that everything gets on.

The rules of ``kafka_keyshared.observability.audit.judge`` are applied to ledgers without what
happened in twilight (``soak_twilight.py``). On top of them, by name:

``repeats``: a record ran again after it was settled, and whoever had settled it was neither killed
    nor cut off from its group afterwards; or an accepted commit had covered it.
``stragglers``: many more repeats than an incarnation has workers were settled before its last
    commit.
``letters``: a record has more dead letters than crashes explain.
``stand-still``: a partition had work that could be done; none of it began or ended for too long.
``behind``: what was safe to commit was not committed for too long.
``stops``: a stop that was not clean although nothing was wrong, or took too long.
``ends``: a member that ended by itself.
``memory``: a member that took more than it may.
``drain``: what was written was not all done at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.judge import Judgement, judge
from kafka_keyshared.observability.audit.ledger import DROPPED, OK, Ended, MemoryLedger, Started
from kafka_keyshared.observability.audit.trace import NEVER as UNSETTLED
from kafka_keyshared.observability.audit.trace import Trace, Trail, build
from tests.chaos.soak_evidence import NS, Evidence, Life
from tests.chaos.soak_excuses import Losses, aftermath, in_outage, losses
from tests.chaos.soak_letters import Acknowledged, Letter
from tests.chaos.soak_live import blocking
from tests.chaos.soak_progress import StandStill, commits_behind, stand_stills
from tests.chaos.soak_twilight import known, without_twilight
from tests.support.commits import falls

STAND_STILL = 30.0
STOP_TIMEOUT = 25.0
STOP_SECONDS = STOP_TIMEOUT + 10.0
"""The stop timeout of a soak's members, and what the last commit and leaving may take."""

OUTLASTED_WORDS = ("gave up on", "handlers still running at exit")

MEANWHILE = 4
"""Records that a worker settles from when a commit is made until it is sent, at most: a busy
machine gives the owner's thread no turn. Six were seen of four workers."""

MEMORY = 320.0
"""MiB: the program, the client's own queue of 64 MiB, a window of 16 MiB, and as much again."""

CONTRACT = (
    "order_violations",
    "overlaps",
    "commits_past_unsettled",
    "commit_sequence_falls",
    "commits_without_ownership",
    "duplicates_after_commit",
)
SHOWN = 5
CONTEXT_LINES = 12


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, and the first case in words. ``at`` is a monotonic time, or None."""

    rule: str
    text: str
    at: int | None = None
    count: int = 1


@dataclass
class Verdict:
    """What was found, and the figures for the table."""

    violations: list[Violation] = field(default_factory=list)
    judgement: Judgement = field(default_factory=Judgement)
    still: list[StandStill] = field(default_factory=list)
    repeats: Counter[str] = field(default_factory=Counter)
    """Excused repeats, by whoever had settled the record."""
    cut_off: dict[str, str] = field(default_factory=dict)
    """Why these may have been repeated."""

    @property
    def clean(self) -> bool:
        """Whether no rule was broken."""
        return not self.violations

    def rules(self) -> set[str]:
        """Return the names of the rules that were broken."""
        return {each.rule for each in self.violations}


def judged(evidence: Evidence, *, still: float = STAND_STILL, memory: float = MEMORY) -> Verdict:
    """Judge a soak. ``still`` is in seconds without excuse, ``memory`` in MiB."""
    ledgers = [evidence.producer, *([evidence.letters] if evidence.letters else [])]
    all_known, lost = known(evidence), losses(evidence)
    seen = [without_twilight(evidence, ledger, all_known) for ledger in evidence.ledgers]
    verdict = Verdict(judgement=judge([*ledgers, *seen]))
    trace = build([*ledgers, *seen])
    _contract(verdict, trace)
    _lost(verdict, trace, evidence)
    fell = falls(evidence.stored, all_known.given_up)
    if fell:
        verdict.violations.append(Violation("commit_sequence_falls", fell[0], count=len(fell)))
    _repeats(verdict, trace, evidence, lost, all_known.letters)
    # What was done in twilight was done: a partition that somebody works on does not stand still.
    whole = build([*ledgers, *evidence.ledgers])
    _letters(verdict, whole, evidence, lost)
    _progress(verdict, whole, evidence, still)
    for life in evidence.lives:
        _end(verdict, life, evidence)
        peak = max((mib for _, mib in life.memory), default=0.0)
        if peak > memory:
            text = f"{life.name} took {peak:.0f} MiB, {memory:.0f} are allowed"
            verdict.violations.append(Violation("memory", text))
    if not evidence.drained:
        verdict.violations.append(
            Violation("drain", "what was written was not all done and committed", evidence.end)
        )
    verdict.violations.sort(key=lambda each: (each.at is None, each.at or 0))
    return verdict


def _contract(verdict: Verdict, trace: Trace) -> None:
    findings = verdict.judgement.findings()
    findings["duplicates_after_commit"] = verdict.judgement.duplicates_after_commit
    for rule in CONTRACT:
        finding = findings[rule]
        if finding.count:
            trail = trail_in(trace, finding.examples[0])
            at = trail.attempts[-1].start if trail is not None and trail.attempts else None
            verdict.violations.append(Violation(rule, finding.examples[0], at, finding.count))


def _lost(verdict: Verdict, trace: Trace, evidence: Evidence) -> None:
    lost = [
        trail
        for trail in trace.all_trails()
        if trail.produced
        and trail.settled == UNSETTLED
        and not blocking(trail.partition.topic, trail.key)
    ]
    if lost:
        first = min(lost, key=lambda trail: (trail.partition, trail.offset))
        how = f"was tried {len(first.attempts)} times" if first.attempts else "was never started"
        verdict.violations.append(
            Violation("lost", f"{first} was written, never settled, and {how}", None, len(lost))
        )


def trail_in(trace: Trace, text: str) -> Trail | None:
    """Return the first record that the words name."""
    found = re.search(r"(\S+)-(\d+)@(\d+)", text)
    if found is None:
        return None
    partition = TopicPartition(found[1], int(found[2]))
    return trace.trails.get(partition, {}).get(int(found[3]))


# --- repeats ---


def _repeats(
    verdict: Verdict,
    trace: Trace,
    evidence: Evidence,
    lost: Losses,
    letters: Mapping[Acknowledged, Letter],
) -> None:
    unexcused: list[tuple[int, str]] = []
    stragglers: Counter[tuple[str, int]] = Counter()
    for trail in trace.all_trails():
        for settler, begun, tried, when, again, who in _settled_and_run_again(trail, letters):
            if lost.told_within(settler, trail.partition, begun, when):
                verdict.repeats[settler] += 1
                continue
            loss = lost.after(settler, trail.partition, tried)
            if loss is None or loss[1] > again:
                words = f"{trail} was settled by {settler} and ran again in {who}"
                unexcused.append((again, words))
                continue
            verdict.repeats[settler] += 1
            stragglers[settler, loss[0]] += when < _last_sent(trace, trail, settler, loss[0])
    if unexcused:
        at, words = min(unexcused)
        verdict.violations.append(Violation("repeats", words, at, len(unexcused)))
    for (settler, told), count in stragglers.items():
        life = evidence.life(settler)
        if life is not None and count > MEANWHILE * life.workers:
            words = (
                f"{count} records that {settler} ({life.workers} workers) had settled before its "
                "last accepted commit ran again"
            )
            verdict.violations.append(Violation("stragglers", words, told, count))
    for settler in verdict.repeats:
        verdict.cut_off[settler] = _why(evidence, settler)


def _settled_and_run_again(
    trail: Trail, letters: Mapping[Acknowledged, Letter]
) -> list[tuple[str, int, int, int, int, str]]:
    """Return who settled it, from when on it was in hand, last tried and done; who again when.

    The times differ for a dead letter, which may be on its way when the partition goes.
    """
    settled = [
        (a.end, a.start, a.end, a.incarnation) for a in trail.attempts if a.outcome in (OK, DROPPED)
    ]
    for at in trail.acknowledged or ():
        letter = letters.get((trail.partition, trail.offset, at))
        if letter is not None:
            settled.append((at, letter.tried, letter.tried, letter.incarnation))
    settled.sort()
    found = []
    for place, (when, begun, tried, settler) in enumerate(settled):
        until = settled[place + 1][0] if place + 1 < len(settled) else UNSETTLED
        again = [a for a in trail.attempts if when < a.start < until]
        if again:
            first = min(again, key=lambda a: a.start)
            found.append((settler, begun, tried, when, first.start, first.incarnation))
    return found


def _last_sent(trace: Trace, trail: Trail, settler: str, before: int) -> int:
    """Return when the last accepted commit of the partition was sent by it."""
    return max(
        (
            commit.sent
            for commit in trace.commits.get(trail.partition, ())
            if commit.incarnation == settler
            and commit.sent <= before
            and commit.accepted_at != UNSETTLED
        ),
        default=-1,
    )


def _letters(verdict: Verdict, trace: Trace, evidence: Evidence, lost: Losses) -> None:
    """A letter more than one takes somebody who tried the record, and was cut off after that.

    Or an outage while it was on its way: what the client gives up on is sent again, and the broker
    may have had the first one.
    """
    outages = [aftermath(evidence, fault) for fault in evidence.faults if fault.outage]
    for trail in trace.all_trails():
        if trail.found < 2:
            continue
        tried = [(attempt.incarnation, attempt.end) for attempt in trail.attempts]
        heard = max(trail.acknowledged or (), default=evidence.end)
        cut = {(who, lost.after(who, trail.partition, end)) for who, end in tried}
        sent = min((end for _, end in tried), default=0)
        excuses = sum(loss is not None for _, loss in cut)
        on_the_way = {
            (who, at)
            for who, end in tried
            for at in lost.told_within(who, trail.partition, end, heard)
        }
        excuses += len(on_the_way)
        excuses += sum(first <= heard and sent <= last for first, last in outages)
        if trail.found - 1 > excuses:
            by = ", ".join(sorted({who for who, _ in tried}))
            text = f"{trail} has {trail.found} dead letters, tried by {by}"
            at = max((end for _, end in tried), default=None)
            verdict.violations.append(Violation("letters", text, at))


def _why(evidence: Evidence, settler: str) -> str:
    life = evidence.life(settler)
    if life is not None and life.killed:
        return f"killed at {evidence.seconds(life.end):.1f} s"
    faults = [
        fault
        for fault in evidence.faults
        if (fault.outage or fault.who == settler)
        and (
            life is None
            or (fault.start <= life.end and aftermath(evidence, fault)[1] >= life.start)
        )
    ]
    named = ", ".join(f"{fault.what} at {evidence.seconds(fault.start):.1f} s" for fault in faults)
    return f"cut off by: {named}"


# --- progress and processes ---


def _progress(verdict: Verdict, trace: Trace, evidence: Evidence, limit: float) -> None:
    verdict.still = stand_stills(evidence, trace)
    for each in verdict.still:
        if each.seconds > limit:
            text = (
                f"{each.partition} stood still from {evidence.seconds(each.start):.1f} to "
                f"{evidence.seconds(each.end):.1f} s ({each.seconds:.1f} s of it without excuse), "
                f"{each.waiting} records waiting"
            )
            verdict.violations.append(Violation("stand-still", text, each.start))
    for late in commits_behind(evidence, trace, limit):
        text = (
            f"{late.partition}@{late.offset} was safe to commit at "
            f"{evidence.seconds(late.since):.1f} s and not committed by an accepted commit until "
            f"{evidence.seconds(late.until):.1f} s"
        )
        verdict.violations.append(Violation("behind", text, late.since))


def _end(verdict: Verdict, life: Life, evidence: Evidence) -> None:
    if life.killed:
        return
    if life.asked is None:
        text = f"{life.name} ended by itself with {life.status}: {life.last_words}"
        verdict.violations.append(Violation("ends", text, life.end))
        return
    seconds = (life.end - life.asked) / NS
    if seconds > STOP_SECONDS:
        text = f"{life.name} took {seconds:.1f} s to stop: {life.last_words}"
        verdict.violations.append(Violation("stops", text, life.asked))
    clean = life.status == 0 and "drained; committed" in life.last_words
    excused = in_outage(evidence, life.asked, life.end) or _outlasted(evidence, life)
    if not clean and not excused:
        text = f"{life.name} stopped with {life.status} although nothing was wrong: "
        verdict.violations.append(Violation("stops", text + life.last_words, life.asked))


def _outlasted(evidence: Evidence, life: Life) -> bool:
    """Whether handlers outlasted it, by its own word, and one ran for as long as it waits for any.

    That is the stop timeout, or the whole stop where a revoke had given up on it before.
    """
    if life.asked is None or not any(each in life.last_words for each in OUTLASTED_WORDS):
        return False
    waited = min(life.asked + int(STOP_TIMEOUT * NS), life.end)
    running = {
        event.attempt: event.at
        for ledger in evidence.ledgers
        if ledger.incarnation == life.name
        for event in ledger.events
        if isinstance(event, Started)
    }
    for ledger in evidence.ledgers:
        if ledger.incarnation == life.name:
            for event in ledger.events:
                if isinstance(event, Ended) and event.at < waited:
                    running.pop(event.attempt, None)
    return any(start <= life.asked for start in running.values())


def context(evidence: Evidence, violation: Violation) -> list[str]:
    """Return what is known around a violation: the record's own story, the steps, the logs."""
    ledgers: list[MemoryLedger] = [evidence.producer, *evidence.ledgers]
    if evidence.letters is not None:
        ledgers.append(evidence.letters)
    trail = trail_in(build(ledgers), violation.text)
    lines = [f"    {line}" for line in story(evidence, trail)] if trail is not None else []
    if violation.at is None:
        return lines
    around = evidence.seconds(violation.at)
    for at, step in evidence.steps:
        if around - 40 <= evidence.seconds(at) <= around + 10:
            lines.append(f"    {evidence.seconds(at):7.1f} s {step}")
    for name, log in evidence.logs.items():
        for line in log.splitlines():
            stamp = re.match(r"(\d+\.\d+) ", line)
            seconds = evidence.seconds(int(float(stamp[1]) * NS)) if stamp else around + 1_000
            if stamp and around - 10 <= seconds <= around + 3:
                lines.append(f"    {seconds:7.1f} s {name}: {line[stamp.end() :][:200]}")
    return lines[: 5 * CONTEXT_LINES]


def story(evidence: Evidence, trail: Trail) -> list[str]:
    """Return what became of one record, in words."""
    told = [
        (
            a.start,
            f"started in {a.incarnation}, ended {a.outcome} at {evidence.seconds(a.end):.3f} s",
        )
        for a in trail.attempts
    ]
    told += [(at, "dead letter acknowledged") for at in trail.acknowledged or ()]
    told.sort()
    return [f"{trail}"] + [f"  {evidence.seconds(at):.3f} s: {what}" for at, what in told]
