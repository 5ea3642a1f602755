"""Worktrees that a workflow may change: which are allowed, what differs there, and how a file is written."""
