"""Failed attempts: retries, dead letters, diverted and blocked lanes."""
