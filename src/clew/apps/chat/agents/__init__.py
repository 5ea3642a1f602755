"""Chat agents: one role each, found by name."""
