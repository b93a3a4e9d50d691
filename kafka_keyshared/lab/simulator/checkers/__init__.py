"""Checkers of the invariants that hold in every simulated run.

Each checker keeps its own books. It never asks an instance for its state. It works out the correct
behaviour from the history and the rules, in separate code.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.bounded import Bounded
from kafka_keyshared.lab.simulator.checkers.careful_starts import CarefulStartsChecker
from kafka_keyshared.lab.simulator.checkers.checker import Checker, FreeSince, always
from kafka_keyshared.lab.simulator.checkers.commit_sequence import CommitSequence
from kafka_keyshared.lab.simulator.checkers.conservation import IDLE_MOST, WorkConservation
from kafka_keyshared.lab.simulator.checkers.fairness import Fairness
from kafka_keyshared.lab.simulator.checkers.joining import Joining
from kafka_keyshared.lab.simulator.checkers.keyed_state import KeyedState
from kafka_keyshared.lab.simulator.checkers.liveness import Liveness
from kafka_keyshared.lab.simulator.checkers.no_loss import NoLoss
from kafka_keyshared.lab.simulator.checkers.no_repeats import NoRepeats
from kafka_keyshared.lab.simulator.checkers.notes import TrueNotes
from kafka_keyshared.lab.simulator.checkers.one_owner import OneOwner
from kafka_keyshared.lab.simulator.checkers.order import OrderChecker
from kafka_keyshared.lab.simulator.checkers.rights import PatientWithRights
from kafka_keyshared.lab.simulator.checkers.safe_commit import SafeCommit
from kafka_keyshared.lab.simulator.checkers.serial import SerialChecker
from kafka_keyshared.lab.simulator.checkers.shared_work import NEAR, SharedWork
from kafka_keyshared.lab.simulator.history import History


def every_checker(
    history: History,
    settings: Sequence[SubscriptionSettings],
    *,
    revoke_deadline: float = 5.0,
    bound: float = 120.0,
    span: int = 10_000,
    free_since: FreeSince = always,
    receives: bool = True,
    authorization_timeout: float | None = None,
    careful: bool = False,
    idle_most: float = IDLE_MOST,
    go_on: bool = False,
) -> list[Checker]:
    """Return one checker for each invariant. They share their books.

    ``revoke_deadline`` and ``bound`` are in seconds. ``span`` is how many offsets ahead of the
    position a record may be before it may be parked. ``careful`` says that members start carefully.
    :class:`SerialChecker` and :class:`Liveness` explain their use.
    """
    books = Books(history, settings)
    found: list[Checker] = [
        SerialChecker(
            history,
            settings,
            books,
            revoke_deadline=revoke_deadline,
            receives=receives,
            go_on=go_on,
        ),
        OrderChecker(history, settings, books, free_since=free_since, go_on=go_on),
        OneOwner(history, settings, books, go_on=go_on),
        KeyedState(history, settings, books, go_on=go_on),
        Joining(history, settings, books, go_on=go_on),
        PatientWithRights(history, settings, books, timeout=authorization_timeout, go_on=go_on),
        NoRepeats(history, settings, books, revoke_deadline=revoke_deadline, go_on=go_on),
        Bounded(history, settings, books, go_on=go_on),
        SafeCommit(history, settings, books, go_on=go_on),
        TrueNotes(history, settings, books, go_on=go_on),
        CommitSequence(history, settings, books, go_on=go_on),
    ]
    liveness = Liveness(
        history,
        settings,
        books,
        bound=bound,
        revoke_deadline=revoke_deadline,
        span=span,
        free_since=free_since,
        careful=careful,
        go_on=go_on,
    )
    work = SharedWork(history, settings, books, liveness, near=min(span, NEAR))
    return [
        *found,
        liveness,
        Fairness(history, settings, books, work, go_on=go_on),
        WorkConservation(history, settings, books, work, idle_most=idle_most, go_on=go_on),
        *(
            [CarefulStartsChecker(history, settings, books, free_since=free_since, go_on=go_on)]
            if careful
            else []
        ),
        NoLoss(history, settings, books, go_on=go_on),
    ]
