"""Stores: threads, events and the rows that belong to them. No rules here: the SQL is written once, for two databases."""
