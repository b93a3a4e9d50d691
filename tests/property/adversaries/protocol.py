"""A seeded driver that gives a dispatcher the worst that the protocol allows.

Workers run at their own pace, reports arrive late and in portions, commits fail in every way and
half of them are stored all the same, partitions come and go, dead letters fail, threads die, the
process crashes. After every event the core checks itself and the oracle checks the core.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.model import Coordinates, TopicPartition
from tests.property.adversaries.oracle import coordinates_of
from tests.property.adversaries.world import World
from tests.support.records import FakeRecord


class Adversary(World):
    """One seed: the will to break the member of a small world."""

    def __init__(self, seed: int, *, records: int = 60, set_budget: int = SET_BUDGET) -> None:
        # A generator of its own, so that what was there before it stays what a seed makes of it.
        self.told = Random(f"told-{seed}")
        super().__init__(seed, records=records, set_budget=set_budget)

    def revoke(self) -> None:
        """Take some partitions away, with a last commit or as lost."""
        owned = sorted(self.oracle.owned)
        if not owned:
            return
        gone = self.rng.sample(owned, self.rng.randint(1, len(owned)))
        if self.rng.random() < 0.25:
            self.lose(gone)
            return
        self.member.tell(ev.Revoking(gone))
        self.oracle.closing.update(gone)
        drained = self.drain(gone)
        progress = self.commit(gone, final=True)
        clean = self._last_answers(gone, drained=drained)
        self.reached["revoked clean"] += len(clean)
        self._forget(gone, clean, ev.Forget(gone, progress=progress))
        self.reached["revoked in time" if drained else "revoked late"] += 1

    def lose(self, gone: Sequence[TopicPartition]) -> None:
        """Take partitions away unheard; what is in flight comes to nothing."""
        member = self.member
        member.tell(ev.Revoking(gone))
        self.oracle.closing.update(gone)
        for commit in member.commits:
            member.mailbox.append(ev.CommitAnswer(commit, CommitResult.LOST, "unknown member"))
        member.commits.clear()
        progress: Progress = {}
        if self.told.random() < 0.7:  # as the loop does; without it, less is known
            # What ends after that may not be known any more.
            self.oracle.lost(gone, self._last_started())
            progress = self.progress()
        self._forget(gone, (), ev.Forget(gone, lost=True, progress=progress))
        self.reached["lost"] += 1

    def _last_started(self) -> set[tuple[str, Coordinates]]:
        """Return the last started record of each slice, of which progress does not say more."""
        found = set()
        for id_, progress in self.member.pool.progress().items():
            slice_ = self.member.core.leased(id_).slice
            for index in progress.running():
                item = slice_.records[index]
                assert isinstance(item, FakeRecord)
                found.add((slice_.subscription, coordinates_of(item)))
        return found

    def _forget(
        self, gone: Sequence[TopicPartition], clean: Collection[TopicPartition], event: ev.Forget
    ) -> None:
        self.oracle.forgotten_dead_letters(gone)
        self.oracle.gone(gone, clean)
        self.member.tell(event)

    def _last_answers(
        self, gone: Sequence[TopicPartition], *, drained: bool
    ) -> set[TopicPartition]:
        """Answer what is in flight; return the partitions that ended clean."""
        self.answer_commits(kindly=self.rng.random() < 0.5)
        return set(gone) - self.refused - self.bare if drained else set()

    def assign_some(self) -> None:
        """Give the member partitions that it does not have."""
        free = [each for each in self.partitions if each not in self.oracle.owned]
        if free:
            self.assign(self.rng.sample(free, self.rng.randint(1, len(free))))
            self.reached["assigned"] += 1

    def crash(self) -> None:
        """End the process without a word; what was in flight may have arrived."""
        for commit in self.member.commits:
            if self.rng.random() < 0.5:
                break
            self.store(commit)
        self.reached["crashed"] += 1
        self.new_member()

    def stop(self) -> None:
        """Stop in order, and start again."""
        member = self.member
        member.tell(ev.Stopping())
        self.oracle.stopped = True
        drained = self.drain(None)
        self.commit(final=True)
        clean = self._last_answers(sorted(self.oracle.owned), drained=drained)
        self.reached["stopped clean"] += len(clean)
        self.reached["stopped in time" if drained else "stopped late"] += 1
        self.new_member(clean)

    def new_member(self, clean: Collection[TopicPartition] = ()) -> None:
        """Start the next process."""
        owned = sorted(self.oracle.owned)
        self.oracle.forgotten_dead_letters(self.partitions)
        self.oracle.gone(owned, clean)
        self.oracle.member_starts()
        now = self.member.now
        self.member.discard()
        self.member = self.make_member()
        self.bare.clear()
        self.member.now = now

    # --- the whole ---

    def act(self) -> None:
        """Do one random thing."""
        for sub in self.member.core.subscriptions.values():
            single = {} if sub.shared is None else sub.shared.single
            self.reached["a hot slot is a shard of its own"] += bool(single)
            beside = [each for each in single.values() if each.beside is not None]
            self.reached["other keys of it are beside"] += bool(beside)
            self.reached["and is leased"] += any(each.leased for each in single.values())
        roll = self.rng.random()
        member = self.member
        if roll < 0.42:
            self.steps()
        elif roll < 0.60:
            member.deliver(self.rng.choice([1, 2, 5, None]))
        elif roll < 0.76:
            self.fetch()
        elif roll < 0.82:
            self.pass_time()
        elif roll < 0.88:
            if member.core.commit_wanted(member.now) or self.rng.random() < 0.1:
                self.commit()
        elif roll < 0.91:
            if member.commits:
                self.answer(member.commits.pop(0))
        elif roll < 0.94:
            self.dead_letters()
        elif roll < 0.965:
            self.beat()
        else:
            self._disturb()

    def _disturb(self) -> None:
        roll = self.rng.random()
        if roll < 0.42:
            self.assign_some()
        elif roll < 0.78:
            self.revoke()
        elif roll < 0.88:
            self.kill_worker()
        elif roll < 0.94:
            self.stop()
        else:
            self.crash()

    def run(self, steps: int) -> None:
        """Do that many random things, then heal and expect everything settled and committed."""
        self.assign(self.partitions)
        for _ in range(steps):
            self.act()
            self._end_by_itself()
        self.heal()

    def _end_by_itself(self) -> bool:
        """End a process that has a worker which cannot be restarted; say whether it has one."""
        ended = bool(self.member.halted)
        if ended:
            self.reached["a process ended by itself"] += 1
            self.new_member()
        return ended

    def heal(self) -> None:
        """End all trouble: from here everything must settle, in bounded time."""
        self.fail_share = 0.0
        member = self.member
        member.pool.replaceable = True
        free = [each for each in self.partitions if each not in self.oracle.owned]
        if free:
            self.assign(free)
        for _ in range(600):
            self.fetch()
            for worker in member.pool.workers.values():
                for _ in range(40):
                    if not worker.busy:
                        break
                    self.step(worker)
            self.dead_letters(kindly=True)
            member.deliver()
            member.beat()
            member.later(0.5)
            if member.core.commit_wanted(member.now):
                self.commit()
            self.answer_commits(kindly=True)
            self.look_after()
            member = self.member
            if self.healed():
                return
        missing = {
            name: [
                at for p, log in self.oracle.log.items() for o in log if (at := (p, o)) not in done
            ]
            for name, done in self.oracle.done.items()
        }
        raise AssertionError(f"never settled: {missing}, stored {self.stored}")

    def look_after(self) -> None:
        """See to what nothing but a person ends, and start a process again that has ended."""
        if self._end_by_itself():
            self.assign(self.partitions)
        closed = [sub.closed.lanes for sub in self.member.core.subscriptions.values()]
        states = {each.state for lanes in closed for each in lanes.values()}
        if self.oracle.blocked or LaneState.BLOCKED in states:
            # What is blocked stays so until a restart with a mended handler. So does a key that
            # came diverted and cannot be any more: no attempt of this life has blocked it.
            self.new_member()
            self.assign(self.partitions)

    def healed(self) -> bool:
        """Whether all is settled and the broker knows it."""
        if not self.oracle.complete():
            return False
        return all(
            not log or (p in self.stored and self.stored[p].position > log[-1])
            for p, log in self.oracle.log.items()
        )
