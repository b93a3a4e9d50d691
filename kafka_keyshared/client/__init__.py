"""The Kafka client: port, adapter, guarded callbacks, clients without a group."""
