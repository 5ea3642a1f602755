"""Decides through the domain, saves through the store. Knows ports, not adapters."""
