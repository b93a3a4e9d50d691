"""The owner: the one thread that has client and core to itself, step by step."""
