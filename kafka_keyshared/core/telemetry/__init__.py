"""Counters, failure statistics and rate limits of log lines."""
