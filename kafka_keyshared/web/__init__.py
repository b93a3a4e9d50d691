"""What is seen from outside over HTTP: metrics and health. Reads statuses, knows nothing else."""
