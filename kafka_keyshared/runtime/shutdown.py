"""The stop of an instance: drain, commit, leave, report.

One deadline, the stop timeout, covers all of it. The second signal gives up the rest. The loop goes
on polling while it drains, or the group would remove the member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import (
    Record,
    TopicPartition,
    counted,
    name_of,
    named_key,
    names_of,
    some,
)
from kafka_keyshared.runtime.fetch_quota import FULL_POLL_EVERY
from kafka_keyshared.runtime.loop import CLIENT_ERRORS, Loop
from kafka_keyshared.runtime.seeking import LAST_BOUNDS_TIMEOUT, LATE_BOUNDS_TIMEOUT
from kafka_keyshared.runtime.wait_plan import BUSY_WAIT

log = log_of("kafka_keyshared.stop")

TELL_FIRST = 1.0
TELL_EVERY = 10.0
"""Seconds until the first line, and between later ones."""

NAMED_MAX = 5


def tell_wait(seconds: float, what: str) -> None:
    """Log what a stop waits for, and for how long it will."""
    log.info(
        "stopping: waiting up to %.0f s for %s; Ctrl-C again to hurry", max(0.0, seconds), what
    )


class Talk:
    """Logs at intervals what a stop waits for, and for how long it will."""

    def __init__(self, loop: Loop, deadline: float) -> None:
        self._loop = loop
        self._deadline = deadline
        self._next = loop.ports.clock() + TELL_FIRST

    def waits_for(self, running: Sequence[Record], dead_letters: int) -> None:
        """Log if it is time. With neither, the stop waits for the last commit's answer."""
        now = self._loop.ports.clock()
        if now < self._next:
            return
        self._next = now + TELL_EVERY
        waited = []
        if running:
            known = _known(self._loop, now)
            names = some((_told(self._loop, each, known) for each in running), NAMED_MAX)
            waited.append(f"{counted(len(running), 'running record')} ({names})")
        if dead_letters:
            waited.append(f"{counted(dead_letters, 'dead letter')} without an answer")
        tell_wait(self._deadline - now, " and ".join(waited) or "the last commit's answer")


def _known(loop: Loop, now: float) -> dict[str, str]:
    """Return how long and where each record has been running, as far as that was seen."""
    found = {}
    for watch in loop.core.watches.values():
        for known in watch.running.values():
            where = loop.ports.pool.where(*known.whose)
            words = f"{now - known.since:.0f} s so far" + (f", now {where}" if where else "")
            found[name_of(known.record)] = words
    return found


def _told(loop: Loop, record: Record, known: Mapping[str, str]) -> str:
    keys = (sub.keys for sub in loop.core.subscriptions.values())
    # It may run in several subscriptions, and use a key other than its own in one of them.
    key = next((each.key(record) for each in keys if each.knows(record)), None)
    name = name_of(record)
    return ", ".join(filter(None, [name, named_key(key), known.get(name)]))


AWAIT_WAIT = 0.02
"""Seconds that one wait of a stop for running records lasts.

Dead letters need their answers polled, so a wait for them lasts a tenth of it.
"""

ANSWER_WAIT = 2.0
"""Seconds for the last commit's answer while no broker answers; else up to the deadline.

A reachable broker may delay a commit behind a JoinGroup, until another member of the group has
joined again.
"""

ASK_AFTER = 1.0
ASK_WAIT = 0.5
"""Seconds without an answer before brokers are probed, and seconds of one probe."""

HURRIED_ANSWER_WAIT = 0.5
"""Seconds for the last commit's answer after a second signal and after the deadline."""

LEFT_OUT = "settled beyond the position run again"
"""Words of the final line for records that did not fit in the commit metadata."""

REFUSED_MOST = 6
"""Most times that the last commit is sent when each was refused for an old generation.

Two are usual when a member joins or leaves, one for each round. The others cover a rolling restart
of the group. A member that was removed for good is refused each time, or gets the loss reported.
"""

UNBEGUN = "not committed, as a right is missing: the next start follows auto.offset.reset there"
"""Words of the final line for partitions without a committed position."""

RETRY_AFTER = 0.05
RETRY_MOST = 1.0
"""First and longest pause in seconds before a failed last commit is sent again.

The pause doubles after each failure.
"""


@dataclass(frozen=True, slots=True)
class StopReport:
    """The result of a stop. ``clean`` means that nothing ran and the commit was accepted.

    - ``heard`` is False when no broker answered at the end. The group cannot be left then either.
    - ``stuck`` is where the abandoned owner was. The group was not left then.
    - ``pending`` says that the coordinator did not answer this member's JoinGroup in time.
    - ``undone`` is None when it could not be counted because it was still changing.
    - ``blocked`` counts keys.
    - ``tracked`` is False when nothing was to be committed.
    - ``left_out`` records had settled beyond positions and did not fit in the commit metadata. They
      run again, so the stop is not clean.
    - ``unbegun`` partitions had only their start position to commit, and that was denied. None of
      their records runs again, but the next start follows the client's reset policy.
    """

    clean: bool
    seconds: float
    undone: int | None
    running: tuple[str, ...]
    commit_accepted: bool
    dead_letters: int = 0
    blocked: int = 0
    stuck: str = ""
    pending: bool = False
    heard: bool = True
    tracked: bool = True
    left_out: int = 0
    unbegun: int = 0

    def line(self) -> str:
        """Return the final line."""
        state = "drained"
        if self.undone is None:
            state = "not drained"
        if self.running or self.dead_letters:
            state = f"gave up on {len(self.running)} running"
        if self.dead_letters:
            state += f" and {counted(self.dead_letters, 'dead letter')} without an answer"
        committed = "committed" if self.commit_accepted else "last commit NOT acknowledged"
        undone = "an unknown number of records"
        if self.undone is not None:
            undone = counted(self.undone, "record")
        runs = "it runs" if self.undone == 1 else "they run"
        left = f"{undone} received and left undone ({runs} at the next start)"
        if not self.tracked:
            committed, left = "nothing is committed", f"{undone} received and dropped"
        if self.blocked:
            left += f"; {counted(self.blocked, 'key')} blocked"
        if self.left_out:
            committed += f"; {self.left_out} {LEFT_OUT}"
        if self.unbegun:
            committed += f"; where {counted(self.unbegun, 'partition')} began is {UNBEGUN}"
        named = f": {', '.join(self.running)}" if self.running else ""
        if self.stuck:
            committed += (
                f"; the group was NOT left: no end of {self.stuck}, so the others get the "
                "partitions after the session timeout"
            )
        elif self.pending:
            committed += (
                "; the group was NOT left: its coordinator did not answer the JoinGroup, so the "
                "next rebalance may wait for the session timeout (session.timeout.ms)"
            )
        return f"stopped in {self.seconds:.2f} s: {state}{named}; {committed}; {left}"


def stop(loop: Loop, timeout: float, hurried: Callable[[], bool]) -> StopReport:
    """Drain and commit within ``timeout`` seconds. ``hurried`` turns true with the second signal.

    Handlers may use all of the time. The last commit's answer is then awaited a little longer.
    """
    clock = loop.ports.clock
    started = clock()
    deadline = started + timeout
    loop.tell(ev.Stopping())
    loop.pause_and_resume()
    running, dead_letters = _await_running(loop, deadline, hurried)
    if loop.commits_stopped:
        accepted, heard = False, loop.ports.client.answers(ASK_WAIT)
    else:
        accepted, heard = _commit(loop, deadline, hurried)
    if hurried() or clock() >= deadline:
        # Includes records that a revoke gave up on: they are not awaited, but must be named.
        running = list(dict.fromkeys([*running, *names_of(loop.awaited(_in_hand(loop))[0])]))
    undone = _undone(loop, loop.progress())
    left_out = loop.core.commits.cut_sets.left_out
    return StopReport(
        clean=not running and not dead_letters and accepted and not left_out,
        seconds=clock() - started,
        undone=undone,
        running=tuple(running),
        commit_accepted=accepted,
        dead_letters=dead_letters,
        blocked=_blocked(loop),
        heard=heard,
        tracked=loop.core.ceilings.tracks,
        left_out=left_out,
        unbegun=loop.core.commits.unbegun(),
    )


def _undone(loop: Loop, progress: Progress) -> int:
    """Return the number of unsettled records, also of slices that still run."""
    return sum(
        1 for sub in loop.core.subscriptions.values() for _ in sub.unsettled.records(progress)
    )


def _blocked(loop: Loop) -> int:
    """Return the number of blocked keys."""
    lanes = (sub.closed.lanes.values() for sub in loop.core.subscriptions.values())
    return sum(each.state is LaneState.BLOCKED for closed in lanes for each in closed)


def _await_running(
    loop: Loop, deadline: float, hurried: Callable[[], bool]
) -> tuple[list[str], int]:
    polled = 0.0
    talk = Talk(loop, deadline)
    while True:
        running, dead_letters = loop.awaited(None)
        now = loop.ports.clock()
        if (not running and not dead_letters) or now >= deadline or hurried():
            return names_of(running), dead_letters
        talk.waits_for(running, dead_letters)
        # Every end of a record is mail, so the mailbox need not be checked more often.
        wait = AWAIT_WAIT if not dead_letters else AWAIT_WAIT / 10
        loop.serve(min(deadline - now, wait))
        if now - polled >= FULL_POLL_EVERY:
            polled = now
            # A record returned here never reaches the core. It is read again at the next start.
            _poll(loop, 0)


def _in_hand(loop: Loop) -> list[TopicPartition]:
    """Return the partitions of all leased records, including revoked partitions."""
    return list(
        {
            leased.slice.came.partition_of(index)
            for sub in loop.core.subscriptions.values()
            for leased in sub.unsettled.leases()
            for index in leased.indices()
        }
    )


def _poll(loop: Loop, timeout: float) -> None:
    try:
        loop.ports.client.poll(timeout)
    except CLIENT_ERRORS as error:
        # Records fetched now are not used any more, and the last commit is still wanted.
        loop.lost_some(error)


def unfinished(loop: Loop | None, seconds: float, stuck: str) -> StopReport:
    """Return the report of a stop whose owner has not returned; from any thread."""
    running: list[str] = []
    undone: int | None = 0
    dead_letters = blocked = 0
    if loop is not None:
        try:
            progress = loop.ports.pool.progress()
            records, dead_letters = loop.core.under_way(None, progress)
            running, undone = names_of(records), _undone(loop, progress)
            blocked = _blocked(loop)
        except (RuntimeError, KeyError):
            # The owner has just returned and changes the state that is read here.
            log.debug("the number of records left undone is unknown", exc_info=True)
            undone = None
    return StopReport(
        clean=False,
        seconds=seconds,
        undone=undone,
        running=tuple(running),
        commit_accepted=False,
        dead_letters=dead_letters,
        blocked=blocked,
        stuck=stuck,
        tracked=loop is None or loop.core.ceilings.tracks,
    )


def _commit(loop: Loop, deadline: float, hurried: Callable[[], bool]) -> tuple[bool, bool]:
    """Send the last commit and serve callbacks until it is answered.

    Return whether it was accepted, and whether a broker answered.

    A member of a cooperative group keeps its partitions over a rebalance (KIP-429). A commit sent
    between its JoinGroup and the answer waits at the broker and then has the previous generation.
    If it is refused for that, it is sent again for the partitions that the member still has.
    """
    left = deadline - loop.ports.clock()
    # Query after the deadline too: running records are no reason to repeat settled ones.
    patience = 0.0 if hurried() else max(LATE_BOUNDS_TIMEOUT, min(LAST_BOUNDS_TIMEOUT, left))
    doubtful = loop.reseek.doubtful(loop, loop.core.partitions, patience)
    last = _LastCommit(loop, doubtful)
    loop.on_answer = last.hear
    heard = _send(loop, last, deadline, hurried)
    for times in range(1, REFUSED_MOST):
        late = hurried() or loop.ports.clock() >= deadline
        over = loop.commits_stopped or loop.halted is not None or (late and times > 1)
        if over or not last.refused_of_ours():
            break
        heard = _send(loop, last, deadline, hurried)
    loop.on_answer = None
    return last.accepted() and not loop.commits_stopped, heard


class _LastCommit:
    """The last commit: its requests, and the partitions for which the broker refused it.

    Answers to earlier commits do not count, since those may have an older generation. There are two
    exceptions. An earlier commit counts for a partition where nothing has settled since, so that it
    is the latest commit there. Any commit counts for a partition that has gone, until a later one,
    sent when the partition went, is accepted.

    Nothing is sent for a ``doubtful`` partition.
    """

    def __init__(self, loop: Loop, doubtful: Collection[TopicPartition]) -> None:
        self._loop = loop
        self._doubtful = doubtful
        self._sent: set[cmd.Commit] = set()
        # Earlier commits, with the partitions for which each is the latest.
        self._earlier: dict[cmd.Commit, list[TopicPartition]] = {}
        self._refused: set[TopicPartition] = set()

    def send(self) -> None:
        """Send settled positions that were not sent yet; resend those that failed."""
        commits = self._loop.core.commits
        before = set(commits.in_flight) - self._sent
        here = None
        if self._doubtful:
            here = [each for each in self._loop.core.partitions if each not in self._doubtful]
        self._loop.commit(here, final=True)
        self._sent |= commits.in_flight.keys() - before
        self._earlier = {each: last for each, last in commits.carrying().items() if each in before}

    def hear(self, answer: ev.CommitAnswer) -> None:
        """Take an answer."""
        entries = answer.commit.entries
        if answer.result is ev.CommitResult.ACCEPTED:
            self._refused.difference_update(entries)
            return
        # a temporary failure is sent again while the partition is assigned
        last: Collection[TopicPartition] = ()
        if answer.result is ev.CommitResult.LOST:
            last = entries if answer.commit in self._sent else self._earlier.get(answer.commit, ())
        here = self._loop.core.partitions
        self._refused.update(each for each in entries if each in last or each not in here)

    def refused_of_ours(self) -> bool:
        """Return whether a refused partition may still be committed by this member."""
        return not self._refused.isdisjoint(self._loop.core.partitions)

    def accepted(self) -> bool:
        """Return whether the broker has accepted every commit."""
        commits = self._loop.core.commits
        left = self._refused or self._doubtful
        return not (left or commits.in_flight or commits.owed() or commits.behind())


def _send(loop: Loop, last: _LastCommit, deadline: float, hurried: Callable[[], bool]) -> bool:
    """Send it and serve callbacks until it is answered; return whether a broker answered."""
    clock = loop.ports.clock
    commits = loop.core.commits
    last.send()
    patience = _Patience(loop, deadline, hurried)
    talk = Talk(loop, deadline)
    again: float | None = None
    pause = RETRY_AFTER
    while (commits.in_flight or commits.owed()) and not patience.over():
        now = clock()
        talk.waits_for((), 0)
        _poll(loop, 0.02)
        loop.serve(BUSY_WAIT)
        if loop.commits_stopped:
            break  # a callback has raised in that poll
        if not commits.retry_now():
            again = None
        elif again is None:
            again, pause = now + pause, min(2 * pause, RETRY_MOST)
        elif now >= again:
            again = None
            last.send()
    return patience.heard


class _Patience:
    """How long to wait for the last commit: up to the deadline while a broker answers.

    A commit that is denied for a missing right is awaited as long. The right may come back, and
    uncommitted records run again. An instance that ends for missing rights has already waited.
    """

    def __init__(self, loop: Loop, deadline: float, hurried: Callable[[], bool]) -> None:
        self._waits_for_rights = loop.halted is None
        self._client = loop.ports.client
        self._clock = loop.ports.clock
        self._commits = loop.core.commits
        self._hurried = hurried
        self._last_heard = self._clock()
        self._hurry_by = self._last_heard + HURRIED_ANSWER_WAIT
        self._deadline = max(deadline, self._hurry_by)
        self._failing: float | None = None
        self.heard = True

    def over(self) -> bool:
        """Return whether to stop waiting."""
        now = self._clock()
        if now >= (self._hurry_by if self._hurried() else self._deadline):
            return True
        if self._commits.retry_now():
            # Answered, and refused for now. A permanently broken client is refused each time.
            if self._waits_for_rights and self._commits.denials.partitions:
                return False
            self._failing = now if self._failing is None else self._failing
            return now - self._failing >= ANSWER_WAIT
        if now - self._last_heard < ASK_AFTER:
            return False
        if self._client.answers(min(ASK_WAIT, self._deadline - now)):
            self._last_heard = self._clock()
        self.heard = self._clock() - self._last_heard < ANSWER_WAIT
        return not self.heard
