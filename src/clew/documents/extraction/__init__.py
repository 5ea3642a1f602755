"""Extraction: bytes of a file to content items, in a child process that can do nothing else."""
