"""The driver: the one part of a Spark run that is a member of the group and has a client."""
