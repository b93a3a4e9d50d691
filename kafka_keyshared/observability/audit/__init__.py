"""Evidence of a run, and an independent judge.

A *ledger* (:mod:`~kafka_keyshared.observability.audit.ledger`) is written during the run: by the
producer, around every handler call and at every commit. The *judge*
(:mod:`~kafka_keyshared.observability.audit.judge`) reads all ledgers of a run afterwards. Neither
knows how records are dispatched.
"""

from kafka_keyshared.observability.audit.judge import Judgement, judge
from kafka_keyshared.observability.audit.ledger import (
    FileLedger,
    Ledger,
    MemoryLedger,
    read_ledgers,
)
from kafka_keyshared.observability.audit.ledger_wrappers import audited

__all__ = [
    "FileLedger",
    "Judgement",
    "Ledger",
    "MemoryLedger",
    "audited",
    "judge",
    "read_ledgers",
]
