"""Names of disturbances, and how often each happens.

A plan draws them by name. :mod:`.disturbances` has their code, which needs the world. A plan is
made before there is one.
"""

from __future__ import annotations

from collections.abc import Mapping

ON_REQUEST = frozenset({"a topic was made anew", "a log was cut off"})
"""Disturbances that no plan draws. Callers request them by name.

When plans draw them, two of two hundred runs of 5,000 steps break (seeds 115 and 152). The cause is
not known.
"""

RATES: Mapping[str, float] = {
    "a member joined": 4.0,
    "a member was stopped": 4.0,
    "a member was killed": 6.0,
    "a record became deadly": 0.5,
    "a lane was ordered about": 0.1,
    "somebody paused and resumed": 2.0,
    "a member was thrown out": 6.0,
    "a member that asks was thrown out": 4.0,
    "a callback raised": 3.0,
    "handlers hung": 2.0,
    "a worker that joins went": 1.2,
    "a worker died": 2.0,
    "a worker was added": 3.0,
    "a worker that filters was added": 1.0,
    "a worker was given other filters": 0.3,
    "a worker was dismissed": 3.0,
    "a subscription was resized": 0.5,
    "a range was assigned": 0.1,
    "an owner stood still": 4.0,
    "an owner stood still for long": 20.0,
    "the brokers were away": 10.0,
    "a member was cut off": 10.0,
    "commits went wrong": 1.2,
    "questions went wrong": 4.0,
    "fetches went wrong": 4.0,
    "a right on a topic was away": 1.0,
    "the right on the group was away": 4.0,
    "keys could not be read": 2.0,
    "a schema was unknown": 2.0,
    "a text of another log was copied": 1.0,
    "brokers took other metadata": 4.0,
    "a dependency was away": 10.0,
    "a log was compacted": 2.0,
    "retention came by": 4.0,
    "a topic was made anew": 5.0,
    "a log was cut off": 2.0,
    "a transaction was written": 1.0,
    "a partition was added": 10.0,
}
"""Mean seconds between two occurrences of each disturbance, by name.

The names are those of the counters of ``keyshared simulate``.
"""
