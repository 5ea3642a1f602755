"""Texts that Clew itself shows to users, and the language a user writes."""
