"""Texts."""
