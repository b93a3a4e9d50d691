"""Kafka clusters on this machine, for demo, bench and tests: none of it is needed in production.

``cluster`` is the interface; ``embedded`` lives inside this process, ``broker`` starts Apache Kafka
from its ``jars``, ``external`` points at a cluster that somebody else runs. ``producer`` keeps what
it writes within what an embedded cluster can hold.
"""
