"""Coding: an issue becomes a plan, a person approves it, and it is carried out in a git worktree."""
