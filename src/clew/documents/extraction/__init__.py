"""Extraction: bytes of a file to content items, in a confined child process."""
