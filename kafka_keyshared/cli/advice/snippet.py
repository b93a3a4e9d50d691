"""The code lines to add, with the user's own names."""

from __future__ import annotations

import json
from collections.abc import Sequence

_CODE = """\
# instead of: while True: handle(consumer.poll(1.0)), one record at a time
from kafka_keyshared import KeyShared
conf = {{"bootstrap.servers": {bootstrap}, "group.id": {group}}}  # and your own settings
app = KeyShared(conf, topics={topics}, workers={workers}{key})  # dlq=True: for what keeps failing
app.handler(handle)  # a function of yours, called with one record
app.run()
# around a consumer of yours: KeyShared.wrap(consumer, conf=conf, topics=…, workers={workers})
"""


def code(
    bootstrap: str, topics: Sequence[str], group: str | None, workers: int, key: str = "record"
) -> str:
    """Return the lines for these topics."""
    return _CODE.format(
        bootstrap=json.dumps(bootstrap),
        group=json.dumps(group or "your-group"),
        topics=json.dumps(list(topics)),
        workers=workers,
        key="" if key == "record" else f", key={json.dumps(key)}",
    )
