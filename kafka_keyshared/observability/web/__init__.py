"""HTTP endpoints: metrics, health, status, orders, admin API and group view."""
