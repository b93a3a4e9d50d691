"""Assignment, revocation and loss of partitions."""
