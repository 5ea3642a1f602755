"""Ports: everything outside the core as the core sees it, one small module per subject. Adapters live in `stores`."""
