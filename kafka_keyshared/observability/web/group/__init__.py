"""The group view: the beats of a group's instances, combined."""
