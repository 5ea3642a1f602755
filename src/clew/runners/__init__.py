"""Runners: claim threads and execute them."""
