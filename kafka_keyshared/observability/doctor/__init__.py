"""The parts of ``keyshared doctor``: cluster queries, checks, findings."""
