"""Folders of code that a workflow may change: which ones, what differs there, and how a file is written."""
