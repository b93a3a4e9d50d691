"""Before: a consumer with callbacks of its own, which keep something for each partition.

Run with: KAFKA=localhost:9092 TOPIC=orders GROUP=billing OUT=billed.txt python own_on_assign.py
TOPIC has records with keys. A group does nothing twice: to see this and its twin in
examples/after do the same orders, give each a GROUP and an OUT of its own.
"""

import os
import signal
import time

from confluent_kafka import Consumer

running = True
billed: dict[int, int] = {}  # partition -> how many orders since it came


def stop(*_):
    global running
    running = False


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
    billed[record.partition()] += 1


def main():
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
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
    with open(os.environ["OUT"], "a") as out:
        while running:
            record = consumer.poll(0.5)
            if record is None:
                continue
            if record.error():
                print("poll:", record.error())
                continue
            bill(record, out)
            consumer.commit(message=record)
    consumer.close()


if __name__ == "__main__":
    main()
