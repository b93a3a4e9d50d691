"""Calls of handlers that take several records."""
