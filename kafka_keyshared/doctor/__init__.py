"""What ``keyshared doctor`` knows: facts asked of a cluster, checks over them, findings."""
