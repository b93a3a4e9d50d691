"""The files that ``keyshared init`` writes: handler, configuration and test."""

from __future__ import annotations

import json
from string import Template

_APP = '''\
"""What happens with a record. `keyshared run app.py:handle --config keyshared.toml` runs it."""

import json

from kafka_keyshared import DeadLetter


def handle(record):
    """Returning means done. Raising means a failed attempt: the record runs again a little later.

    Records of one key come one at a time, in order. Records of other keys run in parallel.
    """
    try:
        order = json.loads(record.value() or b"")
    except ValueError as error:
        # It is as wrong the next time, so no further attempt.
        raise DeadLetter(f"not JSON: {error}") from error
    print(record.key(), order)
'''

_CONFIG = Template("""\
# Settings of `keyshared run`. A flag on the command line wins over this file: -b, -t, -g.

bootstrap = $bootstrap
topics = [$topic]
group = $group
workers = "thread:16"

# What failed in all its attempts goes to the topic with .dlq behind its name, made when missing.
# Without this the key would stay blocked.
dlq = true
dlq_create = true

[retry]
attempts = 5
backoff = 0.1 # seconds before the second attempt, and twice as long before each further one

# Handed to the Kafka client as it is: where to start, security, time-outs.
[kafka]
"auto.offset.reset" = "earliest"
""")

_TEST = '''\
"""The handler, by the rules that it will run under: order, retries, dead letters. No Kafka."""

from app import handle
from kafka_keyshared.testing import run_handler


def test_an_order_is_done_at_once():
    (result,) = run_handler(handle, [("customer-1", b\'{"amount": 5}\')])
    assert (result.outcome, result.attempts) == ("done", 1)


def test_what_is_not_json_goes_to_the_dead_letters_and_stops_nobody():
    records = [("customer-1", b"nonsense"), ("customer-1", b"{}")]
    bad, good = run_handler(handle, records, dlq=True)
    assert (bad.outcome, bad.attempts) == ("dead_lettered", 1)
    assert "not JSON" in bad.reason
    assert good.outcome == "done"
'''

HANDLER, CONFIG, TEST = "app.py", "keyshared.toml", "test_app.py"


def files(bootstrap: str, topic: str, group: str) -> dict[str, str]:
    """Return the text of each file by its name."""
    # JSON strings are valid TOML strings.
    config = _CONFIG.substitute(
        bootstrap=json.dumps(bootstrap), topic=json.dumps(topic), group=json.dumps(group)
    )
    return {HANDLER: _APP, CONFIG: config, TEST: _TEST}
