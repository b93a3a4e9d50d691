"""After: the same loop, unchanged, once for each of 16 members of a split consumer.

Run with: KAFKA=localhost:9092 TOPIC=orders GROUP=billing OUT=billed.txt python poll_loop.py
TOPIC has records with keys. A group does nothing twice: to see this and its twin in
examples/before do the same orders, give each a GROUP and an OUT of its own.
"""

import os
import signal
import sys
import time

from kafka_keyshared import Consumer, split

running = True


def stop(*_):
    global running
    running = False


def bill(record, out):
    time.sleep(0.005)  # stands for a call of the payment provider
    out.write(f"{record.partition()} {record.offset()} {record.key().decode()}\n")
    out.flush()


def loop(consumer, out):
    while running:
        record = consumer.poll(0.5)
        if record is None:
            continue
        if record.error():
            print("poll:", record.error())
            continue
        bill(record, out)
        consumer.commit(message=record)


def main():
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]])
    with open(os.environ["OUT"], "a") as out:
        status = split(consumer, 16).run(lambda member: loop(member, out))
    consumer.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
