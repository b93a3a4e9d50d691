"""The state of one subscription: settings, routing state and unsettled records."""
