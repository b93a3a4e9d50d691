"""Asks for the fixtures; nothing of them is there for who does not ask."""

pytest_plugins = ["kafka_keyshared.testing"]
