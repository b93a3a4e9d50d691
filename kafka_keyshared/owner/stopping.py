"""The end of an instance: drain, commit, leave, and say what was left.

One deadline for all of it (the stop timeout). The second signal gives up the rest of it. While
draining, the loop goes on polling, or the group would throw the member out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kafka_keyshared.core import commands as cmd
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.lanes import LaneState
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import (
    TopicPartition,
    counted,
    names_of,
)
from kafka_keyshared.owner.loop import BUSY_WAIT, CLIENT_ERRORS, Loop
from kafka_keyshared.owner.room import FULL_POLL_EVERY
from kafka_keyshared.owner.seeking import LAST_BOUNDS_TIMEOUT, LATE_BOUNDS_TIMEOUT
from kafka_keyshared.owner.talk import Talk

log = log_of("kafka_keyshared.stop")

AWAIT_WAIT = 0.02
"""So long a stop waits at a time for what runs; for dead letters, which somebody has to ask for,
a tenth of it."""

ANSWER_WAIT = 2.0
"""Seconds for the last commit's answer while no broker answers anything; else up to the deadline.

A broker that is there may keep a commit waiting: behind a JoinGroup, for as long as another member
of the group takes to join again.
"""

ASK_AFTER = 1.0
ASK_WAIT = 0.5
"""After so many seconds without an answer it is asked whether a broker is there, for so many."""

HURRIED_ANSWER_WAIT = 0.5
"""Seconds for the last commit's answer after a second signal and behind the deadline."""

LEFT_OUT = "settled beyond the position run again"
"""What the final line says of records that did not fit in the commit metadata."""

REFUSED_MOST = 6
"""Times that the last commit is sent at most when each was refused as one of an old generation.

Twice are usual when a member joins or leaves, one for each round; the others are for a group that
is restarted member by member. Who is out for good is told so, or hears it each time.
"""

UNBEGUN = "not committed, as a right is missing: the next start follows auto.offset.reset there"
"""What the last line says of partitions without a position."""

RETRY_AFTER = 0.05
RETRY_MOST = 1.0
"""Seconds until the last commit is sent again that failed; twice as long after each failure, up to
the second."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """How the stop went. ``clean`` means that nothing ran any more and the commit was accepted.

    ``heard`` is False when no broker answered at the end: the group cannot be left either then.
    ``stuck`` is where the owner was when it was given up on, with the group not left; ``pending``
    that the coordinator did not answer this member's JoinGroup in time. ``undone`` is
    None when that cannot be said, because it was still changing. ``blocked`` counts keys. Where
    nothing is ``tracked``, nothing was to be committed. ``left_out`` records had settled beyond
    positions and did not fit in the commit metadata: they run again, so the stop is not clean.
    ``unbegun`` partitions had nothing to commit but where they begin, and that was denied: nothing
    of them runs again, but the next start begins them where the client's reset policy says.
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

    Handlers have all of the time; the last commit's answer is then waited for a little longer.
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
        # With what a revoke gave up on: that is not waited for either, and it is to be named.
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
    """Return how many records are not settled; of a slice that still runs, those that are not."""
    return sum(1 for sub in loop.core.subscriptions.values() for _ in sub.unsettled(progress))


def _blocked(loop: Loop) -> int:
    """Return how many keys are blocked."""
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
        # Whatever ends is mail: there is no need to look more often.
        wait = AWAIT_WAIT if not dead_letters else AWAIT_WAIT / 10
        loop.serve(min(deadline - now, wait))
        if now - polled >= FULL_POLL_EVERY:
            polled = now
            # What this may return was never given to the core: it is read again at the next start.
            _poll(loop, 0)


def _in_hand(loop: Loop) -> list[TopicPartition]:
    """Return the partitions of all that a worker has, also those that were revoked meanwhile."""
    return list(
        {
            leased.slice.came.partition_of(index)
            for sub in loop.core.subscriptions.values()
            for leased in sub.leases()
            for index in leased.indices()
        }
    )


def _poll(loop: Loop, timeout: float) -> None:
    try:
        loop.ports.client.poll(timeout)
    except CLIENT_ERRORS as error:
        # Nothing that is fetched now is used any more, and the last commit is still wanted.
        loop.lost_some(error)


def unfinished(loop: Loop | None, seconds: float, stuck: str) -> StopReport:
    """Return the report of a stop whose owner has not come back; from any thread."""
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
            # It has come back just now and changes what is looked at.
            log.debug("what is left undone cannot be said", exc_info=True)
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

    Return whether it was accepted, and whether a broker was there to hear it.

    A member of a cooperative group keeps its partitions over a rebalance (KIP-429), but what it
    commits between its JoinGroup and the answer waits behind that at the broker and is then of the
    generation before. Refused so, it is sent again, of what the member still has.
    """
    left = deadline - loop.ports.clock()
    # Also behind the deadline: what still runs then is no reason to repeat what has settled.
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
    """The last commit: what was sent of it, and for which partitions the broker has refused it.

    What it says to commits from before is another matter: these may be of an older generation. But
    for a partition of which such a one has the last word, as nothing has settled since. So has any
    for a partition that has gone; until a later one is accepted that was sent when it went.

    Nothing is sent for a partition that is ``doubtful``.
    """

    def __init__(self, loop: Loop, doubtful: Collection[TopicPartition]) -> None:
        self._loop = loop
        self._doubtful = doubtful
        self._sent: set[cmd.Commit] = set()
        # Those from before, with the partitions of which they have the last word.
        self._earlier: dict[cmd.Commit, list[TopicPartition]] = {}
        self._refused: set[TopicPartition] = set()

    def send(self) -> None:
        """Send what is settled and not yet sent; all of it again that has failed."""
        commits = self._loop.core.commits
        before = set(commits.in_flight) - self._sent
        here = None
        if self._doubtful:
            here = [each for each in self._loop.core.partitions if each not in self._doubtful]
        self._loop.commit(here, final=True)
        self._sent |= commits.in_flight.keys() - before
        self._earlier = {each: last for each, last in commits.carrying().items() if each in before}

    def hear(self, answer: ev.CommitAnswered) -> None:
        """Take an answer."""
        entries = answer.commit.entries
        if answer.result is ev.CommitResult.ACCEPTED:
            self._refused.difference_update(entries)
            return
        last: Collection[TopicPartition] = ()  # what fails for now is sent again, while it is here
        if answer.result is ev.CommitResult.LOST:
            last = entries if answer.commit in self._sent else self._earlier.get(answer.commit, ())
        here = self._loop.core.partitions
        self._refused.update(each for each in entries if each in last or each not in here)

    def refused_of_ours(self) -> bool:
        """Say whether something was refused that this member may still commit."""
        return not self._refused.isdisjoint(self._loop.core.partitions)

    def accepted(self) -> bool:
        """Say whether the broker has accepted all that was to be committed."""
        commits = self._loop.core.commits
        left = self._refused or self._doubtful
        return not (left or commits.in_flight or commits.owed() or commits.behind())


def _send(loop: Loop, last: _LastCommit, deadline: float, hurried: Callable[[], bool]) -> bool:
    """Send it, and serve callbacks until it is answered; return whether a broker was there."""
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
    """How long the last commit is waited for: up to the deadline, while a broker is there.

    One that is denied for a missing right is waited for as long: the right may come back, and what
    is not committed runs again. An instance that ends for missing rights has waited before.
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
        """Say whether it is waited for no more."""
        now = self._clock()
        if now >= (self._hurry_by if self._hurried() else self._deadline):
            return True
        if self._commits.retry_now():
            # Answered, and refused for now. A client that is broken for good refuses it each time.
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
