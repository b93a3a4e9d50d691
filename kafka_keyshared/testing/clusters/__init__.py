"""Local Kafka clusters for demo, bench and tests, not needed in production.

``cluster`` is the interface. ``embedded`` runs inside this process, ``broker`` starts Apache Kafka
from its ``jars``, and ``external`` connects to an existing cluster. ``producer`` limits its backlog
to the capacity of an embedded cluster.
"""
