"""Tests of the app, the first without Kafka, the second with one that fails."""

from app import Accounts, make_app

from kafka_keyshared.testing import EmbeddedKafka, run_handler, running


def test_a_handler() -> None:
    """Its own rules, and those of retries and dead letters."""
    payments = [("ann", "5"), ("ann", "-9"), ("ann", "six"), ("ann", None), ("ann", "2")]
    results = run_handler(Accounts, payments, dlq=True, dead_letter_on=(ValueError,))
    outcomes = ["done", "dead_lettered", "dead_lettered", "dropped", "done"]
    assert [each.outcome for each in results] == outcomes
    assert [each.attempts for each in results] == [1, 5, 1, 1, 1]
    assert results[1].reason == "RuntimeError: b'ann' would owe 4"


def test_with_kafka(keyshared_cluster: EmbeddedKafka) -> None:
    """Nothing is lost when two commits are refused."""
    keyshared_cluster.create_topic("payments", 4)
    keyshared_cluster.create_topic("payments.dlq", 1)
    keyshared_cluster.produce("payments", [("ann", "5"), ("ben", "six"), ("ann", "2")])
    keyshared_cluster.fail_next("commit", "NOT_COORDINATOR", times=2)
    with running(make_app(keyshared_cluster.conf("accounts"))) as run:
        run.wait_settled()
    assert [each.value() for each in keyshared_cluster.records("payments.dlq")] == [b"six"]
    assert keyshared_cluster.lag("accounts", "payments") == 0
