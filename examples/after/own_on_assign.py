"""After: the callbacks are called as ever; on_revoke when the last order of a partition is done.

Run with: KAFKA=localhost:9092 TOPIC=orders GROUP=billing OUT=billed.txt python own_on_assign.py
TOPIC has records with keys. A group does nothing twice: to see this and its twin in
examples/before do the same orders, give each a GROUP and an OUT of its own.
"""

import os
import sys
import threading
import time

from kafka_keyshared import Consumer, KeyShared

counting = threading.Lock()  # handlers run in many threads
billed: dict[int, int] = {}  # partition -> how many orders since it came


def on_assign(consumer, partitions):
    for each in partitions:
        billed[each.partition] = 0
    print("now mine:", sorted(billed), flush=True)


def on_revoke(consumer, partitions):
    for each in partitions:
        print(f"partition {each.partition}: {billed.pop(each.partition)} orders", flush=True)


def bill(record, out):
    time.sleep(0.005)  # stands for a call of the payment provider
    out.write(f"{record.partition()} {record.offset()} {record.key().decode()}\n")
    out.flush()
    with counting:
        billed[record.partition()] += 1


def main():
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([os.environ["TOPIC"]], on_assign=on_assign, on_revoke=on_revoke)
    app = KeyShared.wrap(consumer, workers=16)
    with open(os.environ["OUT"], "a") as out:
        app.handler(lambda record: bill(record, out))
        status = app.run()
    consumer.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
