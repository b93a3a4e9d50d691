"""Checker I14: shared shards are served in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.shared_work import ShardHolders, SharedWork, TakenRecord
from kafka_keyshared.lab.simulator.history import History, Listener

SLICES_MAX = 2
"""Batches that a worker holds at most: one runs, and one waits."""


class Fairness(Checker):
    """I14, fairness: a ready shard never waits for more batches than there are shards.

    Ready shards are served in turn. A batch takes from the first shards that its worker may have,
    and puts each behind all others. So a batch that does not take from a ready shard moves at least
    one other shard from before it to behind it. There are no more of these than shards with
    records. The owner may lease more before it learns that the shard is free: as many batches as
    its workers hold.

    The checker leaves out shards of which a lane was closed in that time. Records in such a lane
    take a turn of their shard, although none of them starts. It leaves out subscriptions

    - whose workers settle records one by one: they get a batch in several parts;
    - with one lease for each key: records whose lane has become free go before shards;
    - with a limit in bytes: small records may pass large ones.
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
            if not each.one_in_flight_per_key
            and each.prefetch_bytes is None
            and not each.individually
        }
        work.judges.append(self._judge)

    def listeners(self) -> Mapping[type, Listener]:
        """Return no listeners: :class:`SharedWork` calls the checker for each lease."""
        return {}

    def _judge(self, member: int, sub: str, crew: ShardHolders, taken: TakenRecord) -> None:
        if sub not in self._fair or not taken.waits_its_turn:
            return
        most = len(crew.shards) + SLICES_MAX * len(crew.workers)
        if taken.passed > most:
            self.violated(
                member,
                f"{taken.record} could start since {taken.since:.3f} and was passed by "
                f"{taken.passed} batches of {sub!r}: with {len(crew.shards)} shards and "
                f"{len(crew.workers)} workers {most} may pass it",
            )
