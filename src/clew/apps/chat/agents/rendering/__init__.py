"""Rendering of Markdown documents: one parser, and one writer per format."""
