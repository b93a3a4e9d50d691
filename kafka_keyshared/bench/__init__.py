"""Measurements that a user can repeat: always this package beside the bare consume loop."""
