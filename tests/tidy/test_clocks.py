"""Nothing below the service reads time or chance by itself, and the checker finds who does."""

from __future__ import annotations

import pytest

from tests.tidy.clocks import MAY, check_clocks
from tests.tidy.sources import PACKAGE, modules, parse, report


def test_time_and_chance_come_from_the_ports_alone() -> None:
    used: set[tuple[str, str]] = set()
    found = [finding for module in modules(PACKAGE) for finding in check_clocks(module, used)]
    assert not found, report(found)
    assert used == set(MAY), f"no longer needed in the table: {set(MAY) - used}"


@pytest.mark.parametrize(
    "text",
    [
        "import time\ndef f():\n    return time.monotonic()",
        "import time\ndef f(clock=time.monotonic):\n    return clock()",
        "import random\nx = random.uniform(-1, 1)",
        "from time import time_ns",
        "import datetime\nx = datetime.datetime.now()",
        "import uuid\nx = uuid.uuid4()",
    ],
)
@pytest.mark.parametrize("folder", ["client", "executors", "executors/handling", "runtime"])
def test_a_reading_of_real_time_or_chance_is_found(folder: str, text: str) -> None:
    module = parse(text, f"{PACKAGE}/{folder}/planted.py")
    assert len(check_clocks(module, set())) == 1


def test_above_and_in_the_table_it_is_none() -> None:
    used: set[tuple[str, str]] = set()
    text = "import time\ndef stop():\n    return time.monotonic()"
    assert check_clocks(parse(text, f"{PACKAGE}/app/planted.py"), used) == []
    assert check_clocks(parse(text, f"{PACKAGE}/executors/coroutines/asyncio_pool.py"), used) == []
    assert used == {("executors/coroutines/asyncio_pool.py", "stop")}
    assert len(check_clocks(parse(text, f"{PACKAGE}/executors/other.py"), used)) == 1
