"""A user's file with mistakes: each line that ends in `# wrong` is to be reported, and no other."""

from __future__ import annotations

from kafka_keyshared import DeadLetter, Drop, KeyShared, Reader, Record, Retry, split, testing
from kafka_keyshared.testing import EmbeddedKafka, record, run_handler, running

app = KeyShared({"group.id": "billing"}, ["orders"])
KeyShared("localhost:9092", ["orders"])  # wrong
KeyShared({"group.id": "billing"})  # wrong
KeyShared({"group.id": "billing"}, 5)  # wrong
KeyShared({"group.id": "billing"}, ["orders"], dead_letter_on=ValueError)  # wrong
KeyShared({"group.id": "billing"}, ["orders"], worker=4)  # wrong
KeyShared({"group.id": "billing"}, ["orders"], on_exhausted="forget")  # wrong
KeyShared.wrap({"group.id": "billing"})  # wrong
split(app, 4)  # wrong
Reader({}, ["orders"])  # wrong
Reader({}, ["orders"], [0, 10_000])  # wrong
Reader({}, ["orders"], "0-9", start="end")  # wrong
Reader({}, ["orders"], "0-9", slot_function="murmur")  # wrong
app.handler(5)  # wrong
app.runs()  # wrong
text: str = app.run()  # wrong
partitions = app.status().partitions  # wrong


@app.handler
def handle(given: Record) -> Drop | None:
    given.offset() + "1"  # wrong
    given.set_value(b"")  # wrong
    Retry(after="1 s")  # wrong
    Retry(1, 2)  # wrong
    DeadLetter(5)  # wrong
    return Drop  # wrong


handle()  # wrong
handle("a record")  # wrong
testing.recordd()  # wrong
record(5)  # wrong
record(offset="0")  # wrong
run_handler(handle, ["a"])  # wrong
run_handler(handle, [("a", 1)])  # wrong
outcome = run_handler(handle, [])[0].outcom  # wrong
running(app).wait_settled()  # wrong
app.join("mine").receive().ack()  # wrong


def with_kafka(keyshared_cluster: EmbeddedKafka) -> None:
    keyshared_cluster.fail_next("comit", "NOT_COORDINATOR")  # wrong
    keyshared_cluster.conf(5)  # wrong
    keyshared_cluster.produce("orders", [("a", "1")], headers="x")  # wrong
    keyshared_cluster.brokerdown()  # wrong
    with running(app) as run:
        run.wait_setled()  # wrong
    for each in keyshared_cluster.records("orders"):
        each.partition() + ""  # wrong
