"""Coding."""
