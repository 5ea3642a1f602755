"""What one role does with a task; each behind the same interface, found by name."""
