"""Rights that the simulated brokers refuse, until they are granted again.

Fetches of a topic and its commits are served by different brokers. A changed access-control list
does not reach all of them at once. So fetches and commits of a topic are refused separately.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.lab.simulator.client import ClusterPort, SimClient
from kafka_keyshared.lab.simulator.member_events import RightsChanged


class RefusedRights:
    """The rights that are refused now: fetches or commits by topic, and everything of the group."""

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self.fetches: dict[str, None] = {}
        self.commits: dict[str, None] = {}
        self.group = False
        # Number of refusals of the group, so that a member can distinguish one from the next.
        self._times = 0

    def may_read(self, topic: str) -> bool:
        """Return whether a topic may be fetched from."""
        return topic not in self.fetches

    def refuse(self, topic: str, *, fetches: bool, commits: bool) -> None:
        """Refuse fetches or commits of a topic, or both."""
        if fetches:
            self.fetches[topic] = None
        if commits:
            self.commits[topic] = None
        self._tell()

    def grant(self, topics: Iterable[str]) -> None:
        """Grant all rights on these topics again."""
        for topic in topics:
            self.fetches.pop(topic, None)
            self.commits.pop(topic, None)
        self._tell()
        for client in self._cluster.clients:
            client.fetcher.wake()

    def refuse_group(self) -> None:
        """Refuse everything of the group: joins, heartbeats, positions and commits.

        Sessions run out by that. Under KIP-848 a refused heartbeat ends a client.
        """
        self.group = True
        self._times += 1
        self._tell()
        for client in self._cluster.clients:
            self._refuse_heartbeats(client, self._times)

    def _refuse_heartbeats(self, client: SimClient, times: int) -> None:
        cluster, seat = self._cluster, client.membership.seat
        settings = cluster.settings
        chance = cluster.chance("rights")

        def over() -> None:
            gone = client.closed or client.link.dead
            if not self.group or self._times != times or gone:
                return
            if settings.protocol == "kip-848":
                client.refuse_for_good()
            elif seat is not None and client.membership.seat is seat:
                cluster.group.expel(seat)
                client.membership.lose()

        rounds = settings.heartbeat if settings.protocol == "kip-848" else settings.session_timeout
        cluster.timeline.after(chance.uniform(0.5, 1.0) * rounds, over)

    def grant_group(self) -> None:
        """Grant the rights of the group again. Members retry their joins by themselves."""
        self.group = False
        self._tell()

    def grant_all(self) -> None:
        """Grant all rights."""
        if self.group:
            self.grant_group()
        if self.fetches or self.commits:
            self.grant([*self.fetches, *self.commits])

    def _tell(self) -> None:
        refused = tuple(self.fetches)
        self._cluster.history.tell(RightsChanged(refused, tuple(self.commits), self.group))
