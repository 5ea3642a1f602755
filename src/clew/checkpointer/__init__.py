"""Checkpointer."""
