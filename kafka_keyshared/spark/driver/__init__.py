"""The driver of a Spark run, the only part with a client."""
