"""Counters, failure statistics and throttled log lines."""
