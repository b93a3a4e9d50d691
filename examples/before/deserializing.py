"""Before: a DeserializingConsumer, which cannot even fetch more than one record at a time.

Run with: KAFKA=localhost:9092 TOPIC=orders GROUP=billing OUT=billed.txt python deserializing.py
TOPIC has values in JSON with a "total". A group does nothing twice: to see this and its twin in
examples/after do the same orders, give each a GROUP and an OUT of its own.
"""

import json
import os
import signal
import time

from confluent_kafka import DeserializingConsumer
from confluent_kafka.serialization import StringDeserializer

running = True


def stop(*_):
    global running
    running = False


def read_order(data, context):
    return json.loads(data)


def bill(record, out):
    time.sleep(0.005)  # stands for a call of the payment provider
    order = record.value()
    out.write(f"{record.partition()} {record.offset()} {record.key()} {order['total']}\n")
    out.flush()


def main():
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "key.deserializer": StringDeserializer("utf_8"),
            "value.deserializer": read_order,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]])
    with open(os.environ["OUT"], "a") as out:
        while running:
            record = consumer.poll(0.5)
            if record is None:
                continue
            bill(record, out)
            consumer.commit(message=record)
    consumer.close()


if __name__ == "__main__":
    main()
