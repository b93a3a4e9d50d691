"""An app that is awaited: its coroutines run on the caller's loop, and cancelling is a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing import run_handler
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record

WAIT = 60.0


def an_app(broker: OfflineBroker, workers: Any = "asyncio:50", **options: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], workers=workers, hooks=broker.hooks, **options)


def in_time(main: Callable[[], Any]) -> Any:
    """Run it to its end, which has to come."""

    async def bounded() -> Any:
        async with asyncio.timeout(WAIT):
            return await main()

    return asyncio.run(bounded())


def held(app: KeyShared) -> int:
    """How many records its worker has in hand."""
    assert app.instance is not None
    return app.instance.core.outstanding()


def test_coroutines_run_on_the_loop_that_awaits_the_app_and_what_they_did_is_committed() -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset % 7}") for offset in range(50)))
    app = an_app(broker)
    ran: list[tuple[int, Any, int]] = []

    @app.handler
    async def handle(item: Any) -> None:
        await asyncio.sleep(0)
        ran.append((item.offset(), asyncio.get_running_loop(), threading.get_ident()))
        if len(ran) == 50:
            app.stop()

    async def main() -> Any:
        return await app.run_async(), asyncio.get_running_loop(), threading.get_ident()

    status, *here = in_time(main)
    assert status == 0
    assert all([loop, thread] == here for _, loop, thread in ran)
    assert sorted(offset for offset, *_ in ran) == [*range(50)]
    assert broker.positions()[-1] == 50
    assert broker.closed == 1


def test_an_app_is_awaited_where_handlers_were_tried_before() -> None:
    """The thread that tried them is no worker any more."""
    app = an_app(OfflineBroker(record(0)))

    @app.handler
    async def handle(_item: Any) -> None:
        app.stop()

    assert [each.outcome for each in run_handler(print, [("key", "value")])] == ["done"]
    assert in_time(app.run_async) == 0


def test_cancelling_the_task_lets_what_runs_end_and_commits_it() -> None:
    broker = OfflineBroker(record(0, "a"), record(1, "a"))
    app = an_app(broker)
    done: list[int] = []

    async def main() -> None:
        started, go = asyncio.Event(), asyncio.Event()

        @app.handler
        async def handle(item: Any) -> None:
            started.set()
            await go.wait()
            done.append(item.offset())

        run = asyncio.create_task(app.run_async())
        await started.wait()
        while held(app) < 2:
            await asyncio.sleep(0.001)
        run.cancel()
        while held(app) > 1:
            await asyncio.sleep(0.001)
        assert not run.done(), "the record runs"
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await run

    in_time(main)
    assert done == [0], "and the one behind it did not start"
    assert broker.positions()[-1] == 1
    assert app.report is not None and app.report.clean


def test_a_time_limit_around_it_is_one_on_the_run() -> None:
    app = an_app(OfflineBroker())
    app.handler(nothing)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await app.run_async()

    in_time(main)
    assert app.report is not None and app.report.clean


async def nothing(_item: Any) -> None: ...


def test_cancelled_twice_it_hurries_and_leaves_nothing_behind_on_the_loop() -> None:
    app = an_app(OfflineBroker(record(0)), stop_timeout=3_600.0)
    ended: list[str] = []

    async def main() -> None:
        started = asyncio.Event()

        @app.handler
        async def handle(_item: Any) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        run = asyncio.create_task(app.run_async())
        await started.wait()
        for _ in range(2):
            run.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == {asyncio.current_task()}

    in_time(main)
    assert ended == ["cancelled"]


def test_what_outlasts_the_stop_is_cancelled_and_the_status_says_so() -> None:
    broker = OfflineBroker(record(0))
    app = an_app(broker, stop_timeout=0.2)
    ended: list[str] = []

    @app.handler
    async def handle(_item: Any) -> None:
        app.stop()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    assert in_time(app.run_async) == 1
    assert ended == ["cancelled"]
    assert 1 not in broker.positions(), "it runs again at the next start"


def test_what_the_run_fails_with_is_raised_where_it_is_awaited() -> None:
    def stepped(_view: InstanceView) -> None:
        raise InvariantError("planted")

    app = an_app(OfflineBroker(record(0), stepped=stepped))
    with pytest.raises(ConfigError, match="there is no handler"):
        in_time(app.run_async)
    app.handler(nothing)
    with pytest.raises(InvariantError, match="planted"):
        in_time(app.run_async)


def test_a_handler_that_cannot_be_made_is_told_where_it_is_awaited() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

        async def handle(self, record: Any) -> None: ...

    app = an_app(OfflineBroker())
    app.handler(Broken)
    with pytest.raises(ConfigError, match="OSError: no disk"):
        in_time(app.run_async)


def test_a_signal_that_nobody_handles_stops_it_and_another_ones_stays_theirs() -> None:
    app = an_app(OfflineBroker(record(0)))
    heard: list[int] = []

    @app.handler
    async def handle(_item: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    theirs = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    default = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assert in_time(app.run_async) == 0
        assert heard == [signal.SIGINT]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, theirs)
        signal.signal(signal.SIGTERM, default)


def test_what_would_keep_the_loop_from_turning_is_refused_there_and_taken_from_a_thread() -> None:
    app = an_app(OfflineBroker())
    app.handler(nothing)

    async def main() -> None:
        run = asyncio.create_task(app.run_async())
        while app.status() is None:
            await asyncio.sleep(0.001)
        with pytest.raises(ConfigError, match=r"flush\(\) is called on the event loop.*to_thread"):
            app.flush()
        await asyncio.to_thread(app.pause)
        await asyncio.to_thread(app.flush)
        app.stop()
        assert await run == 0

    in_time(main)


def test_a_handler_does_not_run_an_app() -> None:
    app, other = an_app(OfflineBroker(record(0))), an_app(OfflineBroker())
    other.handler(nothing)
    said: list[str] = []

    @app.handler
    async def handle(_item: Any) -> None:
        try:
            await other.run_async()
        except ConfigError as error:
            said.append(str(error))
        app.stop()

    assert in_time(app.run_async) == 0
    assert len(said) == 1 and said[0].startswith("run_async() is called inside a handler")


def test_two_apps_may_be_awaited_on_one_loop() -> None:
    apps = [an_app(OfflineBroker(record(0))) for _ in range(2)]
    ran: list[int] = []

    def run(number: int) -> Callable[[Any], Any]:
        async def handle(_item: Any) -> None:
            ran.append(number)
            apps[number].stop()

        return handle

    for number, app in enumerate(apps):
        app.handler(run(number))

    async def main() -> Any:
        return await asyncio.gather(*(app.run_async() for app in apps))

    assert in_time(main) == [0, 0]
    assert sorted(ran) == [0, 1]


def test_an_app_runs_once_at_a_time_and_again_on_another_loop() -> None:
    broker = OfflineBroker()
    app = an_app(broker)
    app.handler(nothing)

    async def main() -> int:
        run = asyncio.create_task(app.run_async())
        while app.status() is None:
            await asyncio.sleep(0.001)
        with pytest.raises(ConfigError, match="the app runs already"):
            await app.run_async()
        app.stop()
        return await run

    assert in_time(main) == 0
    broker.records.append(record(0))

    @app.handler
    async def handle(_item: Any) -> None:
        app.stop()

    assert in_time(app.run_async) == 0


def test_handlers_find_the_context_of_the_task_that_awaits() -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    app = an_app(OfflineBroker(record(0)))
    found: list[str] = []

    @app.handler
    async def handle(_item: Any) -> None:
        found.append(tenant.get())
        app.stop()

    async def main() -> None:
        tenant.set("a tenant")
        await app.run_async()

    in_time(main)
    assert found == ["a tenant"]


def test_threads_go_on_beside_the_loop_that_awaits() -> None:
    app = an_app(OfflineBroker(record(0)), workers=2)
    ran: list[int] = []

    @app.handler
    def handle(_item: Any) -> None:
        ran.append(threading.get_ident())
        app.stop()

    async def main() -> None:
        assert await app.run_async() == 0
        assert ran and ran != [threading.get_ident()]

    in_time(main)


def test_the_end_of_the_program_that_awaits_it_somewhere_else_stops_it() -> None:
    """``asyncio.run`` cancels every task at its end, those that run records included."""
    broker = OfflineBroker(record(0))
    app = an_app(broker)
    cancelled: list[bool] = []

    async def main() -> None:
        started = asyncio.Event()

        @app.handler
        async def handle(_item: Any) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        main.run = asyncio.create_task(app.run_async())  # type: ignore[attr-defined]
        await started.wait()

    in_time(main)
    assert cancelled == [True]
    assert app.report is not None
    assert 1 not in broker.positions(), "it was not done"
