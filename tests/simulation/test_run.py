"""How a run ends: when all is done, and not before."""

from __future__ import annotations

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.run import all_done
from kafka_keyshared.model import TopicPartition
from tests.support.simulated_members import TOPIC, Simulation

P0 = TopicPartition(TOPIC, 0)


def test_a_run_is_not_over_while_a_transaction_is_open() -> None:
    """Its end may come after the faults', and bring records that somebody has to settle."""
    simulation = Simulation()
    cluster = simulation.cluster
    books = Books(simulation.history, [SubscriptionSettings()])
    assert all_done(cluster, books)
    cluster.append(P0, [b"key"], in_transaction=True)
    assert not all_done(cluster, books)
    cluster.end_transaction(P0, commit=False)
    assert all_done(cluster, books)
    cluster.append(P0, [b"key"], in_transaction=True)
    cluster.end_transaction(P0, commit=True)
    assert not all_done(cluster, books)


def test_a_run_is_over_when_nobody_owes_what_is_not_finished() -> None:
    """What compaction has removed before anybody read it will never be finished."""
    simulation = Simulation()
    cluster = simulation.cluster
    books = Books(simulation.history, [SubscriptionSettings()])
    cluster.append(P0, [b"key"])
    assert not all_done(cluster, books)
    cluster.remove(P0, [0])
    assert any(books.unfinished.values())
    assert all_done(cluster, books)
