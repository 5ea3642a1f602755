"""Graphs, one file each: who speaks after whom."""
