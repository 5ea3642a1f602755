"""Bytes of a file to content items, read by a child process that can do nothing else."""
