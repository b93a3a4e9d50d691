"""Workers of a subscription: run queues, shards and capacity."""
