"""The Kafka client: its port, the real one, guarded callbacks, clients without a group."""
