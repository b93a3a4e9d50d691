"""Random generators for all chance in a run, from one seed.

Each purpose has a generator of its own. One more draw for one purpose changes nothing for the
others. So the meaning of a seed outlives most changes of the simulation.
"""

from __future__ import annotations

from random import Random


class Chance:
    """The generators of one seed, by purpose."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[str, Random] = {}

    def __call__(self, purpose: str) -> Random:
        """Return the purpose's generator, always the same one."""
        found = self._made.get(purpose)
        if found is None:
            # Seeded by text, which is hashed the same way in every process.
            found = self._made[purpose] = Random(f"{self.seed} {purpose}")
        return found
