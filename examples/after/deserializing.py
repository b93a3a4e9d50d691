"""After: the deserializers are callables that run in the workers, just before the handler.

Run with: KAFKA=localhost:9092 TOPIC=orders GROUP=billing OUT=billed.txt python deserializing.py
TOPIC has values in JSON with a "total". A group does nothing twice: to see this and its twin in
examples/before do the same orders, give each a GROUP and an OUT of its own.
"""

import json
import os
import sys
import time

from confluent_kafka.serialization import StringDeserializer

from kafka_keyshared import Consumer, KeyShared


def read_order(data, context):
    return json.loads(data)


def bill(record, out):
    time.sleep(0.005)  # stands for a call of the payment provider
    order = record.value()
    out.write(f"{record.partition()} {record.offset()} {record.key()} {order['total']}\n")
    out.flush()


def main():
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]])
    app = KeyShared.wrap(
        consumer,
        workers=16,
        key_deserializer=StringDeserializer("utf_8"),
        value_deserializer=read_order,
        # Orders that cannot be read are kept there as they came, with the reason.
        dlq=True,
        dlq_create=True,
    )
    with open(os.environ["OUT"], "a") as out:
        app.handler(lambda record: bill(record, out))
        status = app.run()
    consumer.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
