"""The group view: the reports of a group's instances, combined."""
