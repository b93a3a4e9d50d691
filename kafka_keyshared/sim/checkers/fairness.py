"""I14: where workers share what waits, each shard has its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.workers import SLICES_MAX
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.shared_work import Crew, SharedWork, Taken
from kafka_keyshared.sim.history import History, Listener


class Fairness(Checker):
    """I14, fairness: no shard that may be taken waits for more batches than there are shards.

    Ready shards are served in turn. A batch takes from the first ones that its worker may have, and
    puts each behind all others. So every batch that does not take from a shard that is ready moves
    one behind it that was ahead, and there are no more of these than shards with records. To them
    come the batches that the owner hands out before it has heard that the shard is free: at most as
    many as workers hold.

    Not held against this are workers that settle their records one by one, which get a batch in
    several parts, and subscriptions with one lease for each key: records whose lane has become free
    go before shards. Limits in bytes let small records pass large ones.
    """

    invariant = "I14 fairness"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books,
        work: SharedWork,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._fair = {
            each.name
            for each in settings
            if each.max_leases_per_key is None
            and each.lease_bytes_per_worker is None
            and not each.individually
        }
        work.judges.append(self._judge)

    def listeners(self) -> Mapping[type, Listener]:
        """It is called for what workers are handed."""
        return {}

    def _judge(self, member: int, sub: str, crew: Crew, taken: Taken) -> None:
        if sub not in self._fair or taken.shard is None:
            return
        most = len(crew.shards) + SLICES_MAX * len(crew.workers)
        if taken.passed > most:
            self.violated(
                member,
                f"{taken.record} could start since {taken.since:.3f} and was passed by "
                f"{taken.passed} batches of {sub!r}: with {len(crew.shards)} shards and "
                f"{len(crew.workers)} workers {most} may pass it",
            )
