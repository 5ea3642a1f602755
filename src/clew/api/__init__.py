"""HTTP API: one router per resource, one table of errors, one guard in front of all routes."""
