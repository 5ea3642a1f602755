"""Retention: time to live, cleanup, trash, export and usage."""
