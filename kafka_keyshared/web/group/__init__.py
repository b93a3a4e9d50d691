"""The group view: what the instances of a group say of themselves, put together."""
