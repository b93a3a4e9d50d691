"""The owner thread, which alone calls the Kafka client and the core."""
