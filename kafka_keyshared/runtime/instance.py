"""One member of a group, with all its parts.

It has the core, the loop with its ports, the rebalances and the stop. The service over a Kafka
client, tests over their own ports, and the simulator all run this class. :meth:`Instance.step` is
the only round and contains everything that belongs to one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.platform import forks
from kafka_keyshared.runtime.loop import CHUNK, Loop
from kafka_keyshared.runtime.ports import Ports
from kafka_keyshared.runtime.rebalance import Rebalancer
from kafka_keyshared.runtime.shutdown import StopReport, stop

T = TypeVar("T")


class Watcher(Protocol):
    """An observer that is called on the owner thread."""

    def step(self) -> None:
        """Observe; called after every round."""


class Instance:
    """A member of a group. Only its owner thread calls it.

    ``revoke_deadline`` is in seconds. A fetch returns at most ``chunk`` records. ``watcher`` is
    called after every round.
    """

    def __init__(
        self, core: Dispatcher, ports: Ports, *, revoke_deadline: float, chunk: int = CHUNK
    ) -> None:
        self.core = core
        self.ports = ports
        self.loop = Loop(core, ports, chunk)
        self.rebalancer = Rebalancer(self.loop, revoke_deadline)
        self.watcher: Watcher | None = None
        self.pid = os.getpid()

    @property
    def halted(self) -> str | None:
        """Why the instance has halted; None while it can go on."""
        return self.loop.halted

    def start(self) -> None:
        """Start the workers. Raises :class:`ConfigError` when a handler cannot be made."""
        self.ports.pool.start(self.core.lanes)

    def join(self) -> None:
        """Join the group. From now on partitions are assigned and revoked."""
        self.rebalancer.subscribe()

    def tell(self, event: ev.Event) -> None:
        """Pass an event to the core and carry out the commands it returns."""
        self.loop.tell(event)

    def act(self, commands: Iterable[cmd.Command]) -> None:
        """Carry out the core's commands."""
        self.loop.act(commands)

    def ask(
        self,
        name: str,
        order: Callable[[Loop], Generator[None, None, T]],
        timeout: float,
        *,
        follows: bool = False,
    ) -> T:
        """Send an order to the owner from any other thread and wait for its answer.

        ``name`` appears in a refusal. ``timeout`` is in seconds. See :meth:`.Orders.ask`. Raises
        :class:`~.command_queue.OrderRefusedError` with the reason, and :class:`TimeoutError`.
        """
        return self.loop.orders.ask(name, lambda: order(self.loop), timeout, follows=follows)

    def step(self) -> None:
        """Do one round. Raises the exception that a rebalance callback failed with."""
        self.loop.step()
        self.rebalancer.step()
        if self.watcher is not None:
            self.watcher.step()
        if self.rebalancer.failure is not None:
            raise self.rebalancer.failure

    def run(self, over: Callable[[], object], stepped: Callable[[], None] | None = None) -> None:
        """Run rounds until ``over`` is true, the instance halts, or this is a forked child.

        ``stepped`` is called after each round.
        """
        self.loop.orders.belong()
        with forks.ends_here(forks.IN_OWNER) as in_child:
            while not (in_child() or self.halted or over()):
                self.step()
                if stepped is not None:
                    stepped()

    def stop(self, timeout: float, hurried: Callable[[], bool]) -> StopReport:
        """Drain and commit within ``timeout`` seconds; ``hurried`` cuts the rest short.

        Waiting orders are refused, and so is every later one.
        """
        halted = self.halted
        reason = "the instance is stopping" if halted is None else f"it had to halt: {halted}"
        self.loop.orders.close(reason)
        return stop(self.loop, timeout, hurried)

    def close(self) -> None:
        """Accept no further partition and revoke without a commit: the instance has ended.

        Every order that still waits is answered.
        """
        self.rebalancer.closing = True
        self.refuse_orders()

    def refuse_orders(self) -> None:
        """Refuse all waiting and later orders: the instance has ended. Any thread may call it."""
        self.loop.orders.close("the instance has ended")
