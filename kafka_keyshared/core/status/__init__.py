"""The status of an instance, as values."""
