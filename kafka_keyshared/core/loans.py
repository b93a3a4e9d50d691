"""Loans: slots of a worker that is held up, and who has them meanwhile.

A loan lies over the slot table and changes nothing of the routing below it. When there is one,
:mod:`.lending` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kafka_keyshared.core.workers import Worker

BLOCK = 64
"""Slots that stand together and go to one taker: a large range has many of them."""

Running: TypeAlias = tuple[tuple[int, int], ...]
"""What a worker runs: slices by their ids, and the indices of the records there."""


@dataclass(slots=True, eq=False)
class Loan:
    """All slots of a worker but those of ``kept``, lent to ``takers``, workers by their ids.

    In the slots of ``kept`` are the records on which the worker is held up, ``running``. It was so
    ``since`` then; and it was last seen held up at ``held_at``. Both are monotonic, in seconds.
    """

    takers: tuple[int, ...]
    kept: frozenset[int]
    running: Running
    since: float
    held_at: float

    def taker(self, slot: int) -> int:
        """Return who has the slot."""
        return self.takers[slot // BLOCK % len(self.takers)]

    def parts(self, first: int, slots: int) -> Iterator[tuple[int, int]]:
        """Yield (taker, number of slots) of so many slots from the first one on."""
        at, end = first, first + slots
        while at < end:
            upto = min(end, at - at % BLOCK + BLOCK)
            yield self.taker(at), upto - at
            at = upto

    def without(self, gone: Collection[int], others: Sequence[int]) -> bool:
        """Have others in the place of takers that are gone, in turn; say whether there are any.

        Where there are no others, those that are left have their part too.
        """
        if not any(id_ in gone for id_ in self.takers):
            return True
        others = others or [id_ for id_ in self.takers if id_ not in gone]
        if others:
            self.takers = tuple(
                others[at % len(others)] if id_ in gone else id_
                for at, id_ in enumerate(self.takers)
            )
        return bool(others)


class Lending:
    """What is known of who is held up. Times are monotonic, in seconds.

    ``after`` is how long a record runs until its worker lends its slots; the workers are looked at
    again at ``due``. ``seen`` is what each worker ran when it was last looked at, and since when.
    """

    def __init__(self, after: float) -> None:
        self.after = after
        self.due = float("-inf")
        self.seen: dict[int, tuple[Running, float]] = {}
        self.lent_total = 0
        self.returned_total = 0
        # Not before this is the table changed again.
        self.change_at = float("-inf")


def tidy(workers: Iterable[Worker]) -> None:
    """End the loans of workers that are not there any more, and of whom no taker is."""
    workers = [*workers]
    there = {worker.id for worker in workers if worker.present}
    for worker in workers:
        loan = worker.loan
        if loan is None:
            continue
        gone = {id_ for id_ in loan.takers if id_ not in there}
        if not worker.present or not loan.without(gone, ()):
            worker.loan = None
